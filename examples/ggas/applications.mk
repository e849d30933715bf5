# The two applications: `make -f applications.mk` here needs a C compiler, and libwater.so and libpenstock_energy.so in LIBRARIES.
OUT ?= .
LIBRARIES ?= ../../target/release
WATER_INCLUDE ?= ../../crates/faces/water/include
ENERGY_INCLUDE ?= ../../crates/tools/energy/include
CFLAGS ?= -O2 -g
# Where the programs look for the libraries: beside them, as `make install` puts them, and where `make build` leaves them.
RPATH ?= $$ORIGIN:$$ORIGIN/../release

APPS := stencil nbody
FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra $(CFLAGS) -I$(WATER_INCLUDE) -I$(ENERGY_INCLUDE)

all: $(APPS:%=$(OUT)/%) $(APPS:%=$(OUT)/%.cl)

$(APPS:%=$(OUT)/%): $(OUT)/%: %.c app.c ../common/helpers.c app.h ../common/helpers.h $(wildcard $(WATER_INCLUDE)/*.h) $(wildcard $(ENERGY_INCLUDE)/*.h)
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -o $@ $(filter %.c,$^) -L$(LIBRARIES) -lwater -lpenstock_energy -Wl,-rpath,'$(RPATH)' -lm

# The programs look for their kernels beside them.
$(APPS:%=$(OUT)/%.cl): $(OUT)/%.cl: %.cl
	@mkdir -p $(@D)
	@[ $< -ef $@ ] || cp $< $@

clean:
	rm -f $(APPS:%=$(OUT)/%)
	@[ . -ef $(OUT) ] || rm -f $(APPS:%=$(OUT)/%.cl)

.PHONY: all clean
