"""A Lennard-Jones liquid on OpenMM: openmm_lj.py PLATFORM ATOMS STEPS FILE.

Writes the forces at the start to FILE and prints the time of the steps. With 0 steps it only writes
the forces.
"""

import json
import sys
import time

import numpy
import openmm
from openmm import unit

platform_name, atoms, steps, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
side = round(atoms ** (1 / 3) + 0.499)
# Argon near its triple point, on a cubic lattice.
spacing, sigma, epsilon = 0.3615, 0.3405, 0.996
system = openmm.System()
box = side * spacing
system.setDefaultPeriodicBoxVectors((box, 0, 0), (0, box, 0), (0, 0, box))
force = openmm.NonbondedForce()
force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
force.setCutoffDistance(2.5 * sigma)
force.setUseDispersionCorrection(False)
for _ in range(atoms):
    system.addParticle(39.9)
    force.addParticle(0, sigma, epsilon)
system.addForce(force)
grid = numpy.indices((side, side, side)).reshape(3, -1).T[:atoms] * spacing
shaken = grid + numpy.random.default_rng(1).normal(0, 0.01, grid.shape)
integrator = openmm.VerletIntegrator(0.002)
platform = openmm.Platform.getPlatformByName(platform_name)
# The Reference platform always computes in double precision.
single = {} if platform_name == "Reference" else {"Precision": "single"}
context = openmm.Context(system, integrator, platform, single)
context.setPositions(shaken)
forces = context.getState(getForces=True).getForces(asNumpy=True)
numpy.save(file, forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer))
if steps == 0:
    sys.exit()
context.setVelocitiesToTemperature(94, 1)
# The first steps also build kernels.
integrator.step(min(5, steps))
context.getState(getEnergy=True)
start = time.perf_counter()
integrator.step(steps)
energy = context.getState(getEnergy=True).getPotentialEnergy()
took = time.perf_counter() - start
assert numpy.isfinite(energy.value_in_unit(unit.kilojoule_per_mole))
print(json.dumps({"seconds": took}))
