//! `penstock energy`: measures joules and core-seconds of a program, or lists the energy sources of
//! this host.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use penstock_energy::command::{Measured, Outcome, measure};
use penstock_energy::{Channel, Error, Figure, Meter, Options, PowerModel, Report};
use serde_json::{Value, json};

use crate::args::EnergyArgs;
use crate::failure::Failure;
use crate::run::guard;
use crate::table::{self, Table};
use crate::words;

/// Text of a cell without a number.
const NONE: &str = "-";

/// Measures a program, or lists the sources if no program is given.
pub fn energy(args: &EnergyArgs) -> Result<ExitCode, Failure> {
    let idle = Duration::try_from_secs_f64(args.idle).map_err(|_| Failure::Argument {
        argument: format!("--idle {}", args.idle),
        reason: "it must be a number of seconds, not negative".to_owned(),
    })?;
    let model = args.power_model.as_deref().map(PowerModel::read).transpose().map_err(failure)?;
    let options = Options {
        interval: Duration::from_millis(args.interval),
        psys: args.psys,
        ..Options::of_process()
    };
    let mut meter = Meter::open(&options);
    meter.set_model(model);
    let channels = meter.channels();
    let is_measurable =
        channels.iter().any(|channel| channel.class.is_in_total() && channel.unavailable.is_none());
    if args.program.is_empty() {
        list(&channels, args)?;
        return require(args, is_measurable).map(|()| ExitCode::SUCCESS);
    }
    words::split("energy", &args.program)?;
    require(args, is_measurable)?;
    // The file is opened before the program runs. If it could not be written later, the figures
    // would be lost.
    let file =
        args.output.as_deref().map(|path| File::create(path).map_err(Failure::file(path, "write")));
    let mut out: Box<dyn Write> = match file.transpose()? {
        Some(file) => Box::new(file),
        None => Box::new(std::io::stderr()),
    };
    // Where nothing tells joules, there is no idle power either, so nobody waits for it.
    let is_idle_known = channels.iter().any(|channel| channel.unavailable.is_none());
    let idle = if is_idle_known { idle } else { Duration::ZERO };
    let belongs = Some(guard::is_guard as fn(u32) -> bool);
    let measured = Measured { words: args.program.clone(), idle, belongs };
    let outcome = measure(&mut meter, &measured).map_err(failure)?;
    tell(args, &outcome, out.as_mut())?;
    require(args, outcome.report.total.joules.is_some())?;
    Ok(ExitCode::from(outcome.exit_code()))
}

fn require(args: &EnergyArgs, is_there: bool) -> Result<(), Failure> {
    if is_there || !args.require_energy {
        return Ok(());
    }
    Err(Failure::Measure(
        "no energy can be measured; `penstock energy` says why for each source".to_owned(),
    ))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Execute { program, source } => Failure::Execute { program, source },
        Error::Span { what, .. } => {
            Failure::Argument { argument: what.to_owned(), reason: error.to_string() }
        }
        other => Failure::Measure(other.to_string()),
    }
}

fn list(channels: &[Channel], args: &EnergyArgs) -> Result<(), Failure> {
    if args.json {
        return table::print(&format!("{:#}\n", json!({ "sources": channels })));
    }
    let mut table = Table::new(&["COMPONENT", "SOURCE", "STATE"]);
    for channel in channels {
        let state = match &channel.unavailable {
            None => format!("{}, {}", channel.method.name(), channel.detail),
            Some(reason) => format!("unavailable ({reason})"),
        };
        table.row(vec![channel.component.clone(), channel.source.to_string(), state]);
    }
    // Not cut to the terminal's width: the end of a reason is what matters.
    table::print(&table.render(None))
}

/// Writes the figures to `out`, which is separate from the program's own output.
fn tell(args: &EnergyArgs, outcome: &Outcome, out: &mut dyn Write) -> Result<(), Failure> {
    let text = if args.json {
        format!("{:#}\n", document(args, outcome))
    } else {
        as_text(&outcome.report)
    };
    match (out.write_all(text.as_bytes()).and_then(|()| out.flush()), &args.output) {
        (Err(error), Some(path)) => Err(Failure::file(path, "write")(error)),
        // If standard error is closed, nobody wants the figures.
        _ => Ok(()),
    }
}

fn document(args: &EnergyArgs, outcome: &Outcome) -> Value {
    let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy()).collect();
    let mut document = json!(outcome.report);
    if let Value::Object(fields) = &mut document {
        fields.insert("command".to_owned(), json!(words));
        fields.insert("exit_status".to_owned(), json!(outcome.exit_code()));
    }
    document
}

fn as_text(report: &Report) -> String {
    let mut table =
        Table::new(&["COMPONENT", "SOURCE", ">JOULES", ">NET", ">WATTS", ">IDLE WATTS", "REMARK"]);
    for figure in &report.figures {
        let source = format!("{} {}", figure.source, figure.method.name());
        let numbers = [figure.joules, figure.net_joules, figure.mean_watts, figure.idle_watts];
        table.row(row(&figure.component, source, numbers, remark(figure)));
    }
    let total = &report.total;
    let remark = match &total.unavailable {
        Some(reason) => format!("unavailable ({reason})"),
        None => format!("covers {}{}", total.covered.join(", "), lacks(report)),
    };
    let numbers = [total.joules, total.net_joules, total.mean_watts, total.idle_watts];
    table.row(row("total", String::new(), numbers, remark));
    let mut text = format!("\n{}\n", table.render(None));
    for line in lines(report) {
        text += &format!("{}\n", table::printable(&line));
    }
    text
}

fn row(component: &str, source: String, numbers: [Option<f64>; 4], remark: String) -> Vec<String> {
    let numbers =
        numbers.map(|it| it.map_or_else(|| NONE.to_owned(), |number| format!("{number:.3}")));
    [component.to_owned(), source].into_iter().chain(numbers).chain([remark]).collect()
}

fn remark(figure: &Figure) -> String {
    match &figure.unavailable {
        Some(reason) => format!("unavailable ({reason})"),
        None if figure.in_total => {
            std::iter::once("in the total").chain(notes(figure)).collect::<Vec<_>>().join("; ")
        }
        None => notes(figure).collect::<Vec<_>>().join("; "),
    }
}

fn notes(figure: &Figure) -> impl Iterator<Item = &str> {
    figure.notes.iter().map(String::as_str)
}

fn lacks(report: &Report) -> String {
    let names: Vec<_> = report.total.missing.iter().map(|it| it.component.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("; lacks {}", names.join(", ")) }
}

/// Lines below the table.
fn lines(report: &Report) -> Vec<String> {
    let cores = &report.core_seconds;
    let number =
        |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |it| format!("{it:.3}"));
    let mut lines = vec![
        format!("time: {:.3} s", report.seconds),
        format!(
            "core-seconds of the {}: {} (user {}, system {})",
            cores.of,
            number(cores.busy),
            number(cores.user),
            number(cores.system)
        ),
        match &cores.host_unavailable {
            Some(reason) => format!("core-seconds of the host: unavailable ({reason})"),
            None => format!(
                "core-seconds of the host: {} busy, {} idle, {} stolen",
                number(cores.host_busy),
                number(cores.host_idle),
                number(cores.host_stolen)
            ),
        },
    ];
    lines.push(match (report.idle.before_s, report.idle.after_s) {
        (None, None) => "idle power: not measured, so nothing is net of it".to_owned(),
        (before, after) => {
            format!(
                "idle power: measured for {} s before and {} s after",
                number(before),
                number(after)
            )
        }
    });
    if let Some(model) = &report.model {
        lines.push(format!(
            "model {}: model_busy_joules {}, model_host_joules {}; estimated, without {}",
            model.model_file.display(),
            number(model.model_busy_joules),
            number(model.model_host_joules),
            model.model_without
        ));
    }
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines
}
