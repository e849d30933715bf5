//! FFTW, in single and in double precision.

mod functions;
mod plans;

use std::sync::OnceLock;

use penstock_process::Lock;
use penstock_wire::library::LibraryCall;
use penstock_wire::status::Status;

use crate::{Library, Operands};
use functions::Functions;
use plans::{Plans, Wanted};

/// The libraries of both precisions, each with its part for threads. A part for threads brings the
/// library itself.
pub(crate) const FILES: [&str; 2] = ["libfftw3f_threads.so.3", "libfftw3_threads.so.3"];

/// One precision, opened.
struct Precision {
    functions: Functions,
    plans: Lock<Plans>,
}

pub(crate) struct Fftw {
    single: Precision,
    double: Precision,
}

/// Returns FFTW, which the first call opens.
pub(crate) fn opened() -> Option<&'static Fftw> {
    static OPENED: OnceLock<Option<Fftw>> = OnceLock::new();
    let open = || {
        let [single, double] = FILES;
        Some(Fftw {
            single: Precision::open(single, "fftwf_")?,
            double: Precision::open(double, "fftw_")?,
        })
    };
    OPENED.get_or_init(open).as_ref()
}

impl Precision {
    fn open(file: &str, prefix: &str) -> Option<Self> {
        let functions = Functions::of(crate::open::open(file)?, prefix)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        functions.start_threads(i32::try_from(threads).unwrap_or(1))?;
        Some(Self { functions, plans: Lock::default() })
    }
}

impl Library for Fftw {
    fn call(&self, call: &LibraryCall, operands: &Operands) -> Result<(), Status> {
        let LibraryCall::Fft(call) = call else { return Err(Status::INVALID_OPERATION) };
        let input = operands.at(call.input)?;
        let output = call.output.map_or(Ok(input), |place| operands.at(place))?;
        let precision = if call.shape.is_double { &self.double } else { &self.single };
        let wanted = Wanted::of(call, input, output);
        // The planner of FFTW is not safe between threads. Plans are.
        let plan = precision.plans.lock().get(&precision.functions, &wanted)?;
        // SAFETY: the plan was made for this shape and alignment, and the operands have the bytes
        // that the call touches.
        unsafe { precision.functions.execute(&plan, call.shape.kind, input, output) };
        Ok(())
    }
}
