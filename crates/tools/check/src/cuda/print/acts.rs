//! The C statements of one operation.

use super::{has_words, job, looks_of};
use crate::cuda::ledger::Key;
use crate::cuda::plan::{Act, Kernel, Op, Part, Side, Stream, Work};
use crate::cuda::run::Prepared;
use crate::plan::Ptr;

/// Returns the context that must be current for an operation.
pub(super) fn context(prepared: &Prepared<'_>, op: &Op) -> Option<usize> {
    let ledger = &prepared.ledger;
    match &op.act {
        Act::NewStream { context, .. }
        | Act::NewEvent { context, .. }
        | Act::Alloc { context, .. }
        | Act::ContextSync { context }
        | Act::Now { context, .. }
        | Act::NewGraph { context, .. } => Some(*context),
        Act::DropStream { stream } => Some(ledger.streams[stream].context),
        Act::DropEvent { event } | Act::EventWait { event, .. } => {
            Some(ledger.events[event].context)
        }
        Act::Free { mem } => Some(ledger.mems[mem].context),
        Act::Register { .. } | Act::Unregister { .. } => Some(0),
        act => ledger.key(act.stream()?, op.thread).map(Key::context),
    }
}

/// Returns the C statements of an operation.
pub(super) fn lines(prepared: &Prepared<'_>, index: usize, op: &Op) -> Vec<String> {
    let done = |call: String| vec![format!("CODE({index}, {call});")];
    let program = prepared.program;
    match &op.act {
        Act::Signal { id } => vec![format!("atomic_store(&signal{id}, 1);")],
        Act::Await { id } => vec![format!("await(&signal{id});")],
        Act::NewStream { stream, blocking, .. } => {
            done(format!("cuStreamCreate(&stream{stream}, {})", u8::from(!blocking)))
        }
        Act::DropStream { stream } => done(format!("cuStreamDestroy_v2(stream{stream})")),
        Act::NewEvent { event, timing, .. } => {
            done(format!("cuEventCreate(&event{event}, {})", if *timing { 0 } else { 2 }))
        }
        Act::DropEvent { event } => done(format!("cuEventDestroy_v2(event{event})")),
        Act::Alloc { mem, size, .. } => done(format!("cuMemAlloc_v2(&mem{mem}, {size})")),
        Act::Free { mem } => done(format!("cuMemFree_v2(mem{mem})")),
        Act::AllocAsync { mem, stream, size } => {
            done(format!("cuMemAllocAsync(&mem{mem}, {size}, {})", name(*stream)))
        }
        Act::FreeAsync { mem, stream } => {
            done(format!("cuMemFreeAsync(mem{mem}, {})", name(*stream)))
        }
        Act::Register { area } => {
            done(format!("cuMemHostRegister_v2(area{area}, {}, 1)", program.areas[*area].len))
        }
        Act::Unregister { area } => done(format!("cuMemHostUnregister(area{area})")),
        Act::Store { to, len, seed } => {
            vec![format!("store({}, {len}, 0x{seed:08x}u);", host(*to))]
        }
        Act::Check { at, .. } => {
            if !prepared.expected.look(index, 0).is_some_and(has_words) {
                return Vec::new();
            }
            let table = format!("look{index}_0");
            let count = format!("sizeof {table} / sizeof *{table}");
            vec![format!("look_at({index}, {}, {table}, {count});", host(*at))]
        }
        Act::Record { event, stream } => {
            done(format!("cuEventRecord(event{event}, {})", name(*stream)))
        }
        Act::StreamWait { stream, event } => {
            done(format!("cuStreamWaitEvent({}, event{event}, 0)", name(*stream)))
        }
        Act::EventWait { event, query: false } => done(format!("cuEventSynchronize(event{event})")),
        Act::EventWait { event, query: true } => {
            vec![format!("UNTIL({index}, cuEventQuery(event{event}));")]
        }
        Act::StreamSync { stream, query: false } => {
            done(format!("cuStreamSynchronize({})", name(*stream)))
        }
        Act::StreamSync { stream, query: true } => {
            vec![format!("UNTIL({index}, cuStreamQuery({}));", name(*stream))]
        }
        Act::ContextSync { .. } => done("cuCtxSynchronize()".to_owned()),
        Act::Enqueue { stream, work } => {
            let context = prepared.ledger.key(*stream, op.thread).map_or(0, Key::context);
            let place = Site { prepared, op: index, place: 0, context, turns: &[index] };
            place.work(work, Some(&name(*stream)))
        }
        Act::Now { context, work } => {
            let place = Site { prepared, op: index, place: 0, context: *context, turns: &[index] };
            place.work(work, None)
        }
        Act::NewGraph { graph, context, parts } => {
            new_graph(prepared, index, *graph, *context, parts)
        }
        Act::Graph { stream, graph } => {
            done(format!("cuGraphLaunch(graph{graph}, {})", name(*stream)))
        }
    }
}

fn new_graph(
    prepared: &Prepared<'_>,
    index: usize,
    graph: usize,
    context: usize,
    parts: &[Part],
) -> Vec<String> {
    let launches = |op: &Op| matches!(op.act, Act::Graph { graph: own, .. } if own == graph);
    let ops = prepared.program.ops.iter().enumerate();
    let turns: Vec<usize> = ops.filter(|(_, op)| launches(op)).map(|(index, _)| index).collect();
    let forks = parts.iter().any(|part| part.second);
    let mut all = vec![
        "{".to_owned(),
        "    handle first, made;".to_owned(),
        format!("    CODE({index}, cuStreamCreate(&first, 1));"),
    ];
    if forks {
        all.push("    handle second, fork_, join_;".to_owned());
        all.push(format!("    CODE({index}, cuStreamCreate(&second, 1));"));
        all.push(format!("    CODE({index}, cuEventCreate(&fork_, 2));"));
        all.push(format!("    CODE({index}, cuEventCreate(&join_, 2));"));
    }
    all.push(format!("    CODE({index}, cuStreamBeginCapture_v2(first, 1));"));
    let mut forked = false;
    for (number, part) in parts.iter().enumerate() {
        if part.second && !forked {
            forked = true;
            all.push(format!("    CODE({index}, cuEventRecord(fork_, first));"));
            all.push(format!("    CODE({index}, cuStreamWaitEvent(second, fork_, 0));"));
        }
        let place = Site { prepared, op: index, place: number, context, turns: &turns };
        let stream = if part.second { "second" } else { "first" };
        all.extend(
            place.work(&part.work, Some(stream)).into_iter().map(|line| format!("    {line}")),
        );
    }
    if forked {
        all.push(format!("    CODE({index}, cuEventRecord(join_, second));"));
        all.push(format!("    CODE({index}, cuStreamWaitEvent(first, join_, 0));"));
    }
    all.push(format!("    CODE({index}, cuStreamEndCapture(first, &made));"));
    all.push(format!("    CODE({index}, cuGraphInstantiateWithFlags(&graph{graph}, made, 0));"));
    all.push("}".to_owned());
    all
}

/// Position of some work in the program.
struct Site<'a> {
    prepared: &'a Prepared<'a>,
    op: usize,
    place: usize,
    context: usize,
    /// The operations that perform the work.
    turns: &'a [usize],
}

impl Site<'_> {
    /// Returns the statements of some work. Without a stream, they use the synchronous form.
    fn work(&self, work: &Work, stream: Option<&str>) -> Vec<String> {
        let (index, place) = (self.op, self.place);
        let call = |now: &str, later: &str, arguments: String| match stream {
            Some(stream) => vec![format!("CODE({index}, {later}({arguments}, {stream}));")],
            None => vec![format!("CODE({index}, {now}({arguments}));")],
        };
        match work {
            Work::Copy { to, from, len } => {
                let (now, later) = match (to, from) {
                    (Side::Device { .. }, Side::Host(_)) => {
                        ("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2")
                    }
                    (Side::Host(_), _) => ("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2"),
                    _ => ("cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2"),
                };
                call(now, later, format!("{}, {}, {len}", side(*to), side(*from)))
            }
            Work::Copy2D { to, from, rows } => {
                let end = |name: &str, it: &Side, pitch: usize| {
                    let (kind, field) = match it {
                        Side::Host(_) => (1, "host"),
                        Side::Device { .. } => (2, "device"),
                    };
                    format!(
                        ".{name}_kind = {kind}, .{name}_{field} = {}, .{name}_pitch = {pitch}",
                        side(*it)
                    )
                };
                let fields = format!(
                    "{}, {}, .width = {}, .height = {}",
                    end("dst", to, rows.to_pitch),
                    end("src", from, rows.from_pitch),
                    rows.width,
                    rows.height
                );
                let name = format!("copy{index}_{place}");
                let mut all = vec![format!("struct copy2d {name} = {{{fields}}};")];
                all.extend(call(
                    "cuMemcpy2DUnaligned_v2",
                    "cuMemcpy2DAsync_v2",
                    format!("&{name}"),
                ));
                all
            }
            Work::Peer { to, to_offset, from, from_offset, len } => {
                let end = |mem: &usize, offset: &usize| {
                    format!(
                        "mem{mem} + {offset}, context{}",
                        self.prepared.ledger.mems[mem].context
                    )
                };
                let arguments =
                    format!("{}, {}, {len}", end(to, to_offset), end(from, from_offset));
                call("cuMemcpyPeer", "cuMemcpyPeerAsync", arguments)
            }
            Work::Fill { mem, offset, len, unit, value } => {
                let (count, value) = (len / unit, value & (u32::MAX >> (32 - unit * 8)));
                let name = format!("cuMemsetD{}", unit * 8);
                let arguments = format!("mem{mem} + {offset}, 0x{value:x}, {count}");
                call(&format!("{name}_v2"), &format!("{name}Async"), arguments)
            }
            Work::Fill2D { mem, offset, rows, value } => {
                let (pitch, words) = (rows.to_pitch, rows.width / 4);
                let arguments =
                    format!("mem{mem} + {offset}, {pitch}, 0x{value:x}, {words}, {}", rows.height);
                call("cuMemsetD2D32_v2", "cuMemsetD2D32Async", arguments)
            }
            Work::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin } => {
                let number = Kernel::ALL.iter().position(|it| it == kernel).unwrap_or(0);
                let b = b.map_or("0".to_owned(), |b| format!("mem{b} + {}", b_offset * 4));
                let kernel = format!("kernels{}[{number}]", self.context);
                let a = format!("mem{a} + {}", a_offset * 4);
                let stream = stream.unwrap_or("LEGACY");
                vec![format!(
                    "CODE({index}, launch({kernel}, {a}, {b}, {count}, 0x{seed:08x}u, {spin}, {stream}));"
                )]
            }
            Work::Function { job: what, delay_us } => {
                let mut fields =
                    vec![job(what), format!(".delay = {delay_us}"), format!(".op = {index}")];
                fields.extend(looks_of(self.prepared, self.turns, place));
                let name = format!("job{index}_{place}");
                vec![
                    format!("{name} = (struct job){{{}}};", fields.join(", ")),
                    format!(
                        "CODE({index}, cuLaunchHostFunc({}, run_job, &{name}));",
                        stream.unwrap_or("LEGACY")
                    ),
                ]
            }
        }
    }
}

fn name(stream: Stream) -> String {
    match stream {
        Stream::Legacy(_) => "LEGACY".to_owned(),
        Stream::PerThread(_) => "PER_THREAD".to_owned(),
        Stream::Made(stream) => format!("stream{stream}"),
    }
}

fn host(at: Ptr) -> String {
    format!("area{} + {}", at.area, at.offset)
}

fn side(side: Side) -> String {
    match side {
        Side::Host(at) => host(at),
        Side::Device { mem, offset } => format!("mem{mem} + {offset}"),
    }
}
