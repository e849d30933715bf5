//! The C statements of one operation.

use crate::ledger::{Fate, Ledger, MemKind};
use crate::plan::{Act, Cmd, Kernel, MapMode, Op, Ptr, Rect, Style, SvmEnd};
use crate::run::Prepared;

/// Returns the C statements of operation `index`.
pub fn lines(prepared: &Prepared<'_>, index: usize, op: &Op) -> Vec<String> {
    let ledger = &prepared.ledger;
    let one = |line: String| vec![line];
    let done = |call: String| vec![format!("CODE({index}, {call}, CL_SUCCESS);")];
    match &op.act {
        Act::Signal { id } => one(format!("atomic_store(&signal{id}, 1);")),
        Act::Await { id } => one(format!("await(&signal{id});")),
        Act::NewQueue { queue, context, device, out_of_order, profiling } => {
            let flags = match (out_of_order, profiling) {
                (false, false) => "0",
                (true, false) => "CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE",
                (false, true) => "CL_QUEUE_PROFILING_ENABLE",
                (true, true) => {
                    "CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE"
                }
            };
            let call =
                format!("clCreateCommandQueue(context{context}, device({device}), {flags}, &rc)");
            one(format!("queue{queue} = {call}; MADE({index});"))
        }
        Act::DropQueue { queue } => done(format!("clReleaseCommandQueue(queue{queue})")),
        Act::NewBuffer { .. }
        | Act::NewSub { .. }
        | Act::NewImage { .. }
        | Act::NewView { .. }
        | Act::NewSvm { .. } => new_memory(ledger, index, &op.act),
        Act::DropMem { mem } => match ledger.mems[mem].kind {
            MemKind::Svm => {
                one(format!("clSVMFree(context{}, svm{mem});", ledger.mems[mem].context))
            }
            _ => done(format!("clReleaseMemObject(mem{mem})")),
        },
        Act::NewGate { event, context, .. } => {
            one(format!("event{event} = clCreateUserEvent(context{context}, &rc); MADE({index});"))
        }
        Act::SetGate { event, status } => {
            done(format!("clSetUserEventStatus(event{event}, {status})"))
        }
        Act::DropEvent { event } => done(format!("clReleaseEvent(event{event})")),
        Act::Store { to, len, seed } => one(format!("store({}, {len}, 0x{seed:08x}u);", at(*to))),
        Act::Check { at: ptr, .. } => {
            let known = prepared.expected.checks.get(&index);
            let empty = known.is_none_or(|bytes| {
                !bytes.known.chunks_exact(4).any(|word| word.iter().all(|&known| known))
            });
            if empty {
                return Vec::new();
            }
            let count = format!("sizeof look{index} / sizeof *look{index}");
            one(format!("look_at({index}, {}, look{index}, {count});", at(*ptr)))
        }
        Act::Flush { queue } => done(format!("clFlush(queue{queue})")),
        Act::Finish { queue } => {
            let failing =
                ledger.cmds.iter().any(|cmd| cmd.queue == *queue && cmd.fate == Fate::Fails);
            if failing {
                one(format!("clFinish(queue{queue});"))
            } else {
                done(format!("clFinish(queue{queue})"))
            }
        }
        Act::Wait { events } => {
            let code = if events.iter().any(|&event| ledger.fails(event)) {
                "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"
            } else {
                "CL_SUCCESS"
            };
            one(format!("CODE({index}, clWaitForEvents({}), {code});", list(events)))
        }
        Act::Callback { event, callback, sets } => {
            let mut all = Vec::new();
            all.extend(sets.map(|gate| format!("callback{callback}.sets = &event{gate};")));
            let call = format!(
                "clSetEventCallback(event{event}, CL_COMPLETE, ended, &callback{callback})"
            );
            all.extend(done(call));
            all
        }
        Act::AwaitCallback { callback } => {
            let failing = prepared.program.ops.iter().any(|op| {
                matches!(op.act, Act::Callback { event, callback: id, .. } if id == *callback && ledger.fails(event))
            });
            let sign = if failing { ">= 0" } else { "!= 0" };
            vec![
                format!("await(&callback{callback}.count);"),
                format!(
                    "if (callback{callback}.status {sign}) wrong({index}, \"status of the callback\", 0, callback{callback}.status);"
                ),
            ]
        }
        Act::Times { event } => one(format!("times({index}, event{event});")),
        Act::Status { event } => {
            let sign = if ledger.fails(*event) { ">= 0" } else { "!= 0" };
            let info = format!(
                "clGetEventInfo(event{event}, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL)"
            );
            one(format!(
                "{{ cl_int status = 1; CODE({index}, {info}, CL_SUCCESS); if (status {sign}) wrong({index}, \"status\", 0, status); }}"
            ))
        }
        Act::TooBig { queue, source, scratch, seed } => {
            let known = &ledger.queues[queue];
            vec![
                "{".to_owned(),
                format!(
                    "    cl_kernel kernel = new_kernel(program{}, \"do_too_big\");",
                    known.context
                ),
                "    cl_ulong local = 0; const size_t size = 1;".to_owned(),
                format!(
                    "    SETUP(clGetDeviceInfo(device({}), CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL));",
                    known.device
                ),
                format!("    SETUP(clSetKernelArg(kernel, 0, sizeof mem{source}, &mem{source}));"),
                format!(
                    "    SETUP(clSetKernelArg(kernel, 1, sizeof mem{scratch}, &mem{scratch}));"
                ),
                "    refused = clSetKernelArg(kernel, 2, local + (1 << 20), NULL);".to_owned(),
                format!("    argument(kernel, 3, 0x{seed:08x}u);"),
                format!(
                    "    if (!refused) refused = clEnqueueNDRangeKernel(queue{queue}, kernel, 1, NULL, &size, &size, 0, NULL, NULL);"
                ),
                "}".to_owned(),
            ]
        }
        Act::ReadTooBig { queue, scratch, seed, to } => {
            let to = at(*to);
            let read = format!(
                "clEnqueueReadBuffer(queue{queue}, mem{scratch}, CL_TRUE, 0, 4, {to}, 0, NULL, NULL)"
            );
            vec![
                "{".to_owned(),
                format!("    cl_int told = {read}; unsigned seen; memcpy(&seen, {to}, 4);"),
                format!("    if (!refused && !told && seen != 0x{seed:08x}u)"),
                format!(
                    "        wrong({index}, \"a launch did not run and nothing said so\", 0x{seed:08x}, seen);"
                ),
                "}".to_owned(),
            ]
        }
        Act::Enqueue { .. } => {
            let mut all = command(prepared, index, op);
            if let (Act::Enqueue { cmd: Cmd::HotRead { mem, to }, .. }, Some(words)) =
                (&op.act, prepared.expected.hot.get(&index))
            {
                let names: Vec<_> = words.iter().map(|word| format!("0x{word:08x}u")).collect();
                let (count, list) = (ledger.mems[mem].size / 4, names.join(", "));
                let host = at(*to);
                all.push(format!(
                    "one_word({index}, {host}, {count}, (unsigned[]){{{list}}}, {});",
                    words.len()
                ));
            }
            all
        }
    }
}

fn new_memory(ledger: &Ledger, index: usize, act: &Act) -> Vec<String> {
    let made = |mem: usize, call: String| vec![format!("mem{mem} = {call}; MADE({index});")];
    match act {
        Act::NewBuffer { mem, context, size, style, init } => {
            let flags = match style {
                Style::Plain => "CL_MEM_READ_WRITE",
                Style::Alloc => "CL_MEM_ALLOC_HOST_PTR",
                Style::Copy => "CL_MEM_COPY_HOST_PTR",
                Style::Use => "CL_MEM_USE_HOST_PTR",
            };
            let host = init.map_or_else(|| "NULL".to_owned(), at);
            made(*mem, format!("clCreateBuffer(context{context}, {flags}, {size}, {host}, &rc)"))
        }
        Act::NewSub { mem, parent, origin, size } => {
            let region = format!("&(cl_buffer_region){{{origin}, {size}}}");
            let kind = "CL_BUFFER_CREATE_TYPE_REGION";
            made(
                *mem,
                format!("clCreateSubBuffer(mem{parent}, CL_MEM_READ_WRITE, {kind}, {region}, &rc)"),
            )
        }
        Act::NewImage { mem, context, width, height, init } => {
            let (flags, host) = match init {
                Some(ptr) => ("CL_MEM_COPY_HOST_PTR", at(*ptr)),
                None => ("CL_MEM_READ_WRITE", "NULL".to_owned()),
            };
            let shape = format!(
                ".image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = {width}, .image_height = {height}"
            );
            made(*mem, image(*context, flags, &shape, &host))
        }
        Act::NewView { mem, parent, pixels } => {
            let shape = format!(
                ".image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = {pixels}, .mem_object = mem{parent}"
            );
            made(*mem, image(ledger.mems[mem].context, "CL_MEM_READ_WRITE", &shape, "NULL"))
        }
        Act::NewSvm { mem, context, size } => vec![
            format!("svm{mem} = clSVMAlloc(context{context}, CL_MEM_READ_WRITE, {size}, 0);"),
            format!("if (svm{mem} == NULL) wrong({index}, \"clSVMAlloc\", 1, 0);"),
        ],
        _ => Vec::new(),
    }
}

fn image(context: usize, flags: &str, shape: &str, host: &str) -> String {
    let format = "&(cl_image_format){CL_RGBA, CL_UNSIGNED_INT8}";
    format!(
        "clCreateImage(context{context}, {flags}, {format}, &(cl_image_desc){{{shape}}}, {host}, &rc)"
    )
}

fn at(ptr: Ptr) -> String {
    if ptr.offset == 0 {
        format!("area{}", ptr.area)
    } else {
        format!("area{} + {}", ptr.area, ptr.offset)
    }
}

fn list(events: &[usize]) -> String {
    if events.is_empty() {
        return "0, NULL".to_owned();
    }
    let names: Vec<_> = events.iter().map(|event| format!("event{event}")).collect();
    format!("{}, (cl_event[]){{{}}}", events.len(), names.join(", "))
}

fn command(prepared: &Prepared<'_>, index: usize, op: &Op) -> Vec<String> {
    let Act::Enqueue { queue, cmd, wait, event, blocking } = &op.act else { return Vec::new() };
    let ledger = &prepared.ledger;
    let fails = ledger.cmds.iter().any(|cmd| cmd.op == index && cmd.fate == Fate::Fails);
    let code = if fails && *blocking {
        "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"
    } else {
        "CL_SUCCESS"
    };
    let new = event.map_or_else(|| "NULL".to_owned(), |event| format!("&event{event}"));
    let tail = format!("{}, {new}", list(wait));
    let (q, block) = (format!("queue{queue}"), if *blocking { "CL_TRUE" } else { "CL_FALSE" });
    let coded = |call: String| vec![format!("CODE({index}, {call}, {code});")];
    match cmd {
        Cmd::Launch { kernel, a, a_offset, b, b_offset, count, seed, spin } => {
            let mut all = vec![
                "{".to_owned(),
                format!(
                    "    cl_kernel kernel = new_kernel(program{}, \"{}\");",
                    ledger.queues[queue].context,
                    name(*kernel)
                ),
            ];
            let mut place = 0;
            for mem in [Some(*a), *b].into_iter().flatten() {
                all.push(match ledger.mems[&mem].kind {
                    MemKind::Svm => {
                        format!("    SETUP(clSetKernelArgSVMPointer(kernel, {place}, svm{mem}));")
                    }
                    _ => format!(
                        "    SETUP(clSetKernelArg(kernel, {place}, sizeof mem{mem}, &mem{mem}));"
                    ),
                });
                place += 1;
            }
            let mut words = vec![*a_offset];
            words.extend(b.map(|_| *b_offset));
            words.extend([*count, *seed as usize]);
            words.extend((*kernel == Kernel::Slow).then_some(*spin as usize));
            for word in words {
                all.push(format!("    argument(kernel, {place}, {word}u);"));
                place += 1;
            }
            all.push(format!("    const size_t global = {}, local = 16;", count.div_ceil(16) * 16));
            let call =
                format!("clEnqueueNDRangeKernel({q}, kernel, 1, NULL, &global, &local, {tail})");
            all.push(format!("    CODE({index}, {call}, {code});"));
            all.push("}".to_owned());
            all
        }
        Cmd::Map { mem, offset, len, mode, area } => {
            let flags = match mode {
                MapMode::Read => "CL_MAP_READ",
                MapMode::Write => "CL_MAP_WRITE",
                MapMode::Both => "CL_MAP_READ | CL_MAP_WRITE",
                MapMode::Invalidate => "CL_MAP_WRITE_INVALIDATE_REGION",
            };
            if ledger.mems[mem].kind == MemKind::Svm {
                let mut all = coded(format!(
                    "clEnqueueSVMMap({q}, {block}, {flags}, svm{mem} + {offset}, {len}, {tail})"
                ));
                all.push(format!("area{area} = svm{mem} + {offset};"));
                return all;
            }
            let call = format!(
                "clEnqueueMapBuffer({q}, mem{mem}, {block}, {flags}, {offset}, {len}, {tail}, &rc)"
            );
            vec![format!("area{area} = {call}; MADE({index});")]
        }
        Cmd::Unmap { area } => match ledger.areas[area].map {
            Some(map) if ledger.mems[&map.mem].kind == MemKind::Svm => {
                coded(format!("clEnqueueSVMUnmap({q}, area{area}, {tail})"))
            }
            Some(map) => {
                coded(format!("clEnqueueUnmapMemObject({q}, mem{}, area{area}, {tail})", map.mem))
            }
            None => Vec::new(),
        },
        _ => coded(transfer(prepared, cmd, &q, block, &tail)),
    }
}

fn name(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Put => "do_put",
        Kernel::Slow => "do_slow",
        Kernel::Cast => "do_cast",
        Kernel::Mix => "do_mix",
        Kernel::MixPlain => "do_mix_plain",
    }
}

fn sizes(values: [usize; 3]) -> String {
    format!("(size_t[]){{{}, {}, {}}}", values[0], values[1], values[2])
}

fn rectangle(rect: &Rect) -> (String, String) {
    let own = sizes([rect.mem_offset % rect.mem_pitch, rect.mem_offset / rect.mem_pitch, 0]);
    (own, sizes([rect.width, rect.height, 1]))
}

fn transfer(prepared: &Prepared<'_>, cmd: &Cmd, q: &str, block: &str, tail: &str) -> String {
    let zero = sizes([0; 3]);
    let region = |mem: &usize| match prepared.ledger.mems[mem].kind {
        MemKind::Image { width, height } => sizes([width, height, 1]),
        MemKind::View { pixels } => sizes([pixels, 1, 1]),
        _ => zero.clone(),
    };
    match cmd {
        Cmd::Read { mem, offset, len, to } => {
            format!(
                "clEnqueueReadBuffer({q}, mem{mem}, {block}, {offset}, {len}, {}, {tail})",
                at(*to)
            )
        }
        Cmd::Write { mem, offset, len, from } => {
            format!(
                "clEnqueueWriteBuffer({q}, mem{mem}, {block}, {offset}, {len}, {}, {tail})",
                at(*from)
            )
        }
        Cmd::ReadRect { mem, rect, to: ptr } | Cmd::WriteRect { mem, rect, from: ptr } => {
            let function = if matches!(cmd, Cmd::ReadRect { .. }) { "Read" } else { "Write" };
            let ((own, region), host) = (rectangle(rect), at(*ptr));
            let pitches = format!("{}, 0, {}, 0", rect.mem_pitch, rect.other_pitch);
            format!(
                "clEnqueue{function}BufferRect({q}, mem{mem}, {block}, {own}, {zero}, {region}, {pitches}, {host}, {tail})"
            )
        }
        Cmd::Copy { from, from_offset, to, to_offset, len } => {
            format!(
                "clEnqueueCopyBuffer({q}, mem{from}, mem{to}, {from_offset}, {to_offset}, {len}, {tail})"
            )
        }
        Cmd::CopyRect { from, to, to_offset, rect } => {
            let (own, region) = rectangle(rect);
            let other = sizes([to_offset % rect.other_pitch, to_offset / rect.other_pitch, 0]);
            let pitches = format!("{}, 0, {}, 0", rect.mem_pitch, rect.other_pitch);
            format!(
                "clEnqueueCopyBufferRect({q}, mem{from}, mem{to}, {own}, {other}, {region}, {pitches}, {tail})"
            )
        }
        Cmd::Fill { mem, offset, len, word } => {
            format!(
                "clEnqueueFillBuffer({q}, mem{mem}, &(cl_uint){{0x{word:08x}u}}, 4, {offset}, {len}, {tail})"
            )
        }
        Cmd::HotFill { mem, word } => {
            let len = prepared.ledger.mems[mem].size;
            format!(
                "clEnqueueFillBuffer({q}, mem{mem}, &(cl_uint){{0x{word:08x}u}}, 4, 0, {len}, {tail})"
            )
        }
        Cmd::HotRead { mem, to } => {
            let len = prepared.ledger.mems[mem].size;
            format!("clEnqueueReadBuffer({q}, mem{mem}, {block}, 0, {len}, {}, {tail})", at(*to))
        }
        Cmd::Marker => format!("clEnqueueMarkerWithWaitList({q}, {tail})"),
        Cmd::Barrier => format!("clEnqueueBarrierWithWaitList({q}, {tail})"),
        Cmd::Migrate { mems, to_host, undefined } => {
            let names: Vec<_> = mems.iter().map(|mem| format!("mem{mem}")).collect();
            let flags = match (to_host, undefined) {
                (false, false) => "0",
                (true, false) => "CL_MIGRATE_MEM_OBJECT_HOST",
                (false, true) => "CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED",
                (true, true) => {
                    "CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED"
                }
            };
            let list = names.join(", ");
            format!(
                "clEnqueueMigrateMemObjects({q}, {}, (cl_mem[]){{{list}}}, {flags}, {tail})",
                mems.len()
            )
        }
        Cmd::ReadImage { mem, to } => {
            format!(
                "clEnqueueReadImage({q}, mem{mem}, {block}, {zero}, {}, 0, 0, {}, {tail})",
                region(mem),
                at(*to)
            )
        }
        Cmd::WriteImage { mem, from } => {
            format!(
                "clEnqueueWriteImage({q}, mem{mem}, {block}, {zero}, {}, 0, 0, {}, {tail})",
                region(mem),
                at(*from)
            )
        }
        Cmd::FillImage { mem, word } => {
            let bytes = word.to_le_bytes();
            let color =
                format!("(cl_uint[]){{{}, {}, {}, {}}}", bytes[0], bytes[1], bytes[2], bytes[3]);
            format!("clEnqueueFillImage({q}, mem{mem}, {color}, {zero}, {}, {tail})", region(mem))
        }
        Cmd::ImageToBuffer { image, mem, offset } => {
            format!(
                "clEnqueueCopyImageToBuffer({q}, mem{image}, mem{mem}, {zero}, {}, {offset}, {tail})",
                region(image)
            )
        }
        Cmd::BufferToImage { mem, offset, image } => {
            format!(
                "clEnqueueCopyBufferToImage({q}, mem{mem}, mem{image}, {offset}, {zero}, {}, {tail})",
                region(image)
            )
        }
        Cmd::SvmCopy { to, from, len } => {
            let end = |end: &SvmEnd| match end {
                SvmEnd::Svm { mem, offset } => format!("svm{mem} + {offset}"),
                SvmEnd::Host(ptr) => at(*ptr),
            };
            format!("clEnqueueSVMMemcpy({q}, {block}, {}, {}, {len}, {tail})", end(to), end(from))
        }
        Cmd::SvmFill { mem, offset, len, word } => {
            format!(
                "clEnqueueSVMMemFill({q}, svm{mem} + {offset}, &(cl_uint){{0x{word:08x}u}}, 4, {len}, {tail})"
            )
        }
        Cmd::Launch { .. } | Cmd::Map { .. } | Cmd::Unmap { .. } => String::new(),
    }
}
