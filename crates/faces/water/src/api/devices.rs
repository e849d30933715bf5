//! Devices: those that exist, and those that the program chose.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use penstock_dql::{Attribute, Device as _, Kind, Query, Selection, Value};

use super::run::{self, Device, Run};
use super::{Opaque, enter, variadic};
use crate::error::Error;
use crate::record;
use crate::runtime::{Runtime, recording};

/// Begins a run with the devices that the query selects.
pub fn init(query: &Query) -> Result<(), Error> {
    run::begin(|| {
        let settings = record::Settings::of_environment()?;
        let runtime = crate::launch::start()?;
        if let Err(error) = crate::settings::apply(&runtime) {
            runtime.end();
            return Err(error);
        }
        let all = list(&runtime);
        let chosen = {
            let queried: Vec<_> = all.iter().map(Device::as_queried).collect();
            query.select(&queried)
        };
        if chosen.is_empty() {
            runtime.end();
            let known = all
                .iter()
                .map(|device| format!("\n  rank {}: {}", device.rank, name(device)))
                .collect::<String>();
            let known = if known.is_empty() {
                " there are no devices at all".to_owned()
            } else {
                format!(" there are:{known}")
            };
            return Err(Error::NoDevice(format!("{query};{known}")));
        }
        if let Err(error) = settings.make_files() {
            runtime.end();
            return Err(error);
        }
        recording::begin(&runtime, settings);
        let mut all: Vec<_> = all.into_iter().map(Some).collect();
        let devices = chosen
            .into_iter()
            .filter_map(|place| all.get_mut(place).and_then(Option::take))
            .collect();
        Ok(Run::new(runtime, devices))
    })
}

/// Returns the handle of the device that the query selects, or null if there is none.
pub fn get(query: &Query) -> Result<*mut Opaque, Error> {
    if !matches!(query.selection(), Selection::Position(_)) {
        return Err(Error::Invalid(format!(
            "wtr_get_device needs a query with SELECT POS i, but the query is: {query}"
        )));
    }
    let run = run::current()?;
    let queried: Vec<_> = run.devices().iter().map(Device::as_queried).collect();
    let found = query.select(&queried).first().and_then(|place| run.devices().get(*place));
    // "NULL if there is none" is an answer, not an error.
    Ok(found.map_or(std::ptr::null_mut(), |device| std::ptr::without_provenance_mut(device.handle)))
}

fn list(runtime: &Runtime) -> Vec<Device> {
    let mut devices = Vec::new();
    for (rank, info) in (0..).zip(runtime.ranks()) {
        let count = info.devices.len();
        for (index, info) in (0..).zip(info.devices) {
            devices.push(Device { rank, index, count, info, handle: 0 });
        }
    }
    devices
}

fn name(device: &Device) -> String {
    let name = Attribute::find("name")
        .and_then(|name| device.as_queried().attribute(name).map(|value| shown(name, &value)));
    name.unwrap_or_default()
}

/// Formats a value as a query would write it.
fn shown(attribute: Attribute, value: &Value<'_>) -> String {
    let list = |items: Vec<String>| items.join(" ");
    match (attribute.kind(), value) {
        (Kind::Choice(names), Value::Int(number)) => names
            .iter()
            .find(|named| i128::from(named.value) == *number)
            .map_or_else(|| number.to_string(), |named| named.name.to_owned()),
        (Kind::Type(names) | Kind::Flags(names), Value::Int(number)) => list(
            names
                .iter()
                .filter(|named| {
                    named.value != 0 && i128::from(named.value) & number == i128::from(named.value)
                })
                .map(|named| named.name.to_owned())
                .collect(),
        ),
        (_, Value::Bool(value)) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
        (_, Value::Int(value)) => value.to_string(),
        (_, Value::Float(value)) => value.to_string(),
        (_, Value::Text(text)) => text.clone().into_owned(),
        (_, Value::Version(version)) => version.to_string(),
        (_, Value::Ints(values)) => list(values.iter().map(ToString::to_string).collect()),
        (_, Value::Names(names)) => list(names.iter().map(ToString::to_string).collect()),
        (_, Value::Versions(versions)) => list(versions.iter().map(ToString::to_string).collect()),
        _ => String::new(),
    }
}

/// # Safety
/// `dql` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_init_devices_v(dql: *const c_char) {
    enter("wtr_init_devices_v", (), || {
        // SAFETY: the caller guarantees it.
        let text = unsafe { variadic::text(dql, "the query") }?;
        init(&Query::parse(text)?)
    });
}

/// # Safety
/// `dql` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_get_device_v(dql: *const c_char) -> *mut Opaque {
    // SAFETY: the caller guarantees it.
    enter("wtr_get_device_v", std::ptr::null_mut(), || {
        // SAFETY: the caller guarantees it.
        let text = unsafe { variadic::text(dql, "the query") }?;
        get(&Query::parse(text)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wtr_get_num_devices() -> c_int {
    enter("wtr_get_num_devices", 0, || {
        Ok(c_int::try_from(run::current()?.devices().len()).unwrap_or(c_int::MAX))
    })
}

/// Waits for all commands, and ends the run.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_release_devices() {
    enter("wtr_release_devices", (), || {
        let run: Arc<Run> = run::current()?;
        run.runtime().drain();
        recording::finish(run.runtime());
        drop(run);
        run::end()
    });
}

/// Prints all that is known of a device, by the names of the query language.
#[unsafe(no_mangle)]
pub extern "C" fn wtr_print_device_infos(device: *mut Opaque) {
    enter("wtr_print_device_infos", (), || {
        let run = run::current()?;
        let device = run.device(device)?;
        let queried = device.as_queried();
        let mut text = format!(
            "{} (node {}, rank {}, device {})\n",
            name(device),
            device.info.hostname,
            device.rank,
            device.index
        );
        for attribute in Attribute::all() {
            if let Some(value) = queried.attribute(attribute) {
                text.push_str(&format!(
                    "  {:<42} {}\n",
                    attribute.name(),
                    shown(attribute, &value)
                ));
            }
        }
        print!("{text}");
        Ok(())
    });
}

/// # Safety
/// `attribute` is a text that ends with a zero; `value` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wtr_device_attribute(
    device: *mut Opaque,
    attribute: *const c_char,
    value: *mut c_char,
    size: usize,
) -> c_int {
    enter("wtr_device_attribute", crate::error::code::INVALID, || {
        let run = run::current()?;
        let device = run.device(device)?;
        // SAFETY: the caller guarantees it.
        let name = unsafe { variadic::text(attribute, "the attribute") }?;
        let attribute = Attribute::find(name)
            .ok_or_else(|| Error::Invalid(format!("there is no attribute `{name}`")))?;
        let text = device
            .as_queried()
            .attribute(attribute)
            .map(|value| shown(attribute, &value))
            .unwrap_or_default();
        if value.is_null() || size <= text.len() {
            return Err(Error::Invalid(format!(
                "{} bytes are too few for `{text}` and the terminating zero",
                size
            )));
        }
        // SAFETY: there is room for the text and the terminating zero.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), value, text.len());
            value.add(text.len()).write(0);
        }
        Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
    })
}
