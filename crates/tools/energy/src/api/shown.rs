//! Figures in C's form, together with the texts that they point to.

use std::ffi::{CString, c_char, c_double, c_int};

use crate::meter::Channel;
use crate::report::{Figure, Report};

/// Layout of the header's `penstock_energy_figure`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CFigure {
    size: usize,
    component: *const c_char,
    source: *const c_char,
    method: *const c_char,
    detail: *const c_char,
    unavailable: *const c_char,
    unavailable_kind: *const c_char,
    notes: *const c_char,
    in_total: c_int,
    seconds: c_double,
    joules: c_double,
    net_joules: c_double,
    mean_watts: c_double,
    min_watts: c_double,
    max_watts: c_double,
    idle_watts: c_double,
    idle_before_watts: c_double,
    idle_after_watts: c_double,
    step_s: c_double,
}

/// Layout of the header's `penstock_energy_total`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CTotal {
    size: usize,
    seconds: c_double,
    joules: c_double,
    net_joules: c_double,
    mean_watts: c_double,
    idle_watts: c_double,
    covered: *const c_char,
    missing: *const c_char,
    unavailable: *const c_char,
}

/// Layout of the header's `penstock_energy_cores`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CCores {
    size: usize,
    user: c_double,
    system: c_double,
    busy: c_double,
    host_busy: c_double,
    host_idle: c_double,
    host_stolen: c_double,
}

/// Layout of the header's `penstock_energy_model`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CModel {
    size: usize,
    model_busy_joules: c_double,
    model_host_joules: c_double,
}

/// The figures of a meter that the program can query.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) figures: Vec<CFigure>,
    pub(super) total: Option<CTotal>,
    pub(super) cores: Option<CCores>,
    pub(super) model: Option<CModel>,
    pub(super) json: Option<CString>,
    texts: Texts,
}

// SAFETY: the pointers lead to `texts`, which move with this value and are never changed.
unsafe impl Send for Shown {}

/// Texts that pointers lead to. The bytes of a `CString` stay in place when the list grows.
#[derive(Debug, Default)]
struct Texts(Vec<CString>);

impl Texts {
    fn keep(&mut self, text: &str) -> *const c_char {
        let text = c_text(text);
        let address = text.as_ptr();
        self.0.push(text);
        address
    }

    fn keep_if(&mut self, text: Option<&str>) -> *const c_char {
        text.map_or(std::ptr::null(), |text| self.keep(text))
    }
}

/// Converts a text to a C string. The text ends at its first null, as it would for C.
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn number(value: Option<f64>) -> c_double {
    value.unwrap_or(c_double::NAN)
}

impl Shown {
    fn new() -> Self {
        let (figures, texts) = (Vec::new(), Texts::default());
        Self { figures, total: None, cores: None, model: None, json: None, texts }
    }

    /// Returns what a program sees before the first measurement: all channels, without values.
    pub(super) fn of_channels(channels: &[Channel]) -> Self {
        let mut shown = Self::new();
        for it in channels {
            let texts = &mut shown.texts;
            let figure = CFigure {
                size: size_of::<CFigure>(),
                component: texts.keep(&it.component),
                source: texts.keep(it.source.name()),
                method: texts.keep(it.method.name()),
                detail: texts.keep(&it.detail),
                unavailable: texts
                    .keep_if(it.unavailable.as_ref().map(ToString::to_string).as_deref()),
                unavailable_kind: texts
                    .keep_if(it.unavailable.as_ref().map(|reason| reason.kind())),
                notes: texts.keep(""),
                in_total: 0,
                seconds: c_double::NAN,
                joules: c_double::NAN,
                net_joules: c_double::NAN,
                mean_watts: c_double::NAN,
                min_watts: c_double::NAN,
                max_watts: c_double::NAN,
                idle_watts: c_double::NAN,
                idle_before_watts: c_double::NAN,
                idle_after_watts: c_double::NAN,
                step_s: it.step_s,
            };
            shown.figures.push(figure);
        }
        shown
    }

    /// Returns the figures of a report.
    pub(super) fn of_report(report: &Report) -> Self {
        let mut shown = Self::new();
        for figure in &report.figures {
            let figure = shown.figure(figure);
            shown.figures.push(figure);
        }
        shown.total = Some(shown.total_of(report));
        let cores = &report.core_seconds;
        shown.cores = Some(CCores {
            size: size_of::<CCores>(),
            user: number(cores.user),
            system: number(cores.system),
            busy: number(cores.busy),
            host_busy: number(cores.host_busy),
            host_idle: number(cores.host_idle),
            host_stolen: number(cores.host_stolen),
        });
        shown.model = report.model.as_ref().map(|model| CModel {
            size: size_of::<CModel>(),
            model_busy_joules: number(model.model_busy_joules),
            model_host_joules: number(model.model_host_joules),
        });
        // A report consists of numbers and texts, so it can always be written.
        shown.json = serde_json::to_string_pretty(report).ok().map(|text| c_text(&text));
        shown
    }

    fn figure(&mut self, it: &Figure) -> CFigure {
        let texts = &mut self.texts;
        CFigure {
            size: size_of::<CFigure>(),
            component: texts.keep(&it.component),
            source: texts.keep(it.source.name()),
            method: texts.keep(it.method.name()),
            detail: texts.keep(&it.detail),
            unavailable: texts.keep_if(it.unavailable.as_ref().map(ToString::to_string).as_deref()),
            unavailable_kind: texts.keep_if(it.unavailable.as_ref().map(|reason| reason.kind())),
            notes: texts.keep(&it.notes.join("\n")),
            in_total: it.in_total.into(),
            seconds: number(it.seconds),
            joules: number(it.joules),
            net_joules: number(it.net_joules),
            mean_watts: number(it.mean_watts),
            min_watts: number(it.min_watts),
            max_watts: number(it.max_watts),
            idle_watts: number(it.idle_watts),
            idle_before_watts: number(it.idle_before_watts),
            idle_after_watts: number(it.idle_after_watts),
            step_s: it.step_s,
        }
    }

    fn total_of(&mut self, report: &Report) -> CTotal {
        let total = &report.total;
        let missing: Vec<String> = total
            .missing
            .iter()
            .map(|it| format!("{}: {}", it.component, it.reasons.join("; ")))
            .collect();
        CTotal {
            size: size_of::<CTotal>(),
            seconds: report.seconds,
            joules: number(total.joules),
            net_joules: number(total.net_joules),
            mean_watts: number(total.mean_watts),
            idle_watts: number(total.idle_watts),
            covered: self.texts.keep(&total.covered.join(", ")),
            missing: self.texts.keep(&missing.join("\n")),
            unavailable: self.texts.keep_if(total.unavailable.as_deref()),
        }
    }
}
