//! Settings of the root from the environment: `WTR_DCR`, `WTR_DCR_EXPLAIN`, `WTR_LINK`.

use penstock_process::variable;

use crate::error::Error;
use crate::root::cost::Link;
use crate::root::explain::Explain;
use crate::root::mode::Mode;
use crate::runtime::Runtime;

/// Applies the settings to a run that has just begun. If no link is given, this measures it.
///
/// # Errors
/// A variable has an invalid value, or the file cannot be created.
pub fn apply(runtime: &Runtime) -> Result<(), Error> {
    let mode = match variable::text("WTR_DCR") {
        None => Mode::default(),
        Some(name) => Mode::named(&name).ok_or_else(|| {
            Error::Invalid(format!("WTR_DCR is `{name}`, and must be off, paper or auto"))
        })?,
    };
    let explain = match variable::text("WTR_DCR_EXPLAIN") {
        None => Explain::default(),
        Some(path) => Explain::to_file(&path).map_err(|reason| Error::File { path, reason })?,
    };
    let link = match variable::text("WTR_LINK") {
        Some(text) => parse(&text)?,
        None if mode == Mode::Off => Link::default(),
        None => runtime.measure_link(),
    };
    runtime.with_root(|root| {
        root.set_mode(mode);
        root.set_explain(explain);
        root.set_link(link);
    });
    Ok(())
}

/// Parses `latency,overhead,bandwidth` in µs, µs and MB/s.
fn parse(text: &str) -> Result<Link, Error> {
    let wrong = || {
        Error::Invalid(format!(
            "WTR_LINK is `{text}`, and must be LATENCY,OVERHEAD,BANDWIDTH (us, us, MB/s), as 25,2,125"
        ))
    };
    let numbers: Vec<f64> = text
        .split(',')
        .map(|number| number.trim().parse().map_err(|_| wrong()))
        .collect::<Result<_, _>>()?;
    match numbers[..] {
        [latency, overhead, bandwidth]
            if latency >= 0.0
                && overhead >= 0.0
                && bandwidth > 0.0
                && numbers.iter().all(|number| number.is_finite()) =>
        {
            Ok(Link {
                latency_ns: latency * 1e3,
                overhead_ns: overhead * 1e3,
                byte_ns: 1e3 / bandwidth,
            })
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_in_the_units_of_its_documentation() {
        assert_eq!(
            parse("25,2,125").unwrap(),
            Link { latency_ns: 25_000.0, overhead_ns: 2_000.0, byte_ns: 8.0 }
        );
        for wrong in ["", "1,2", "1,2,0", "1,2,x", "1,2,3,4", "-1,2,3", "1,nan,3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
