//! The commands of queues.

use std::ffi::c_void;

use super::{Cl, MISSING, call, code, sys};
use crate::backend::{Argument, At, Call, End, Enqueued, Handle};
use crate::plan::{Kernel, MapMode};
use sys::{cl_command_queue, cl_event, cl_kernel, cl_mem};

/// Work-items per work-group. All launches use the same number, because some drivers compile a
/// kernel again for each size.
const GROUP: usize = 16;

/// The arguments that all calls for one command share.
struct Tail {
    queue: cl_command_queue,
    blocking: u32,
    count: u32,
    wait: *const cl_event,
    event: *mut cl_event,
}

impl Cl {
    fn place(&self, at: At, len: usize) -> Result<*mut c_void, i32> {
        let areas = self.areas.read();
        areas.address(at, len).map(|address| address as *mut c_void).ok_or(MISSING)
    }

    pub(super) fn send(
        &self,
        queue: Handle,
        what: &Call,
        wait: &[Handle],
        wants_event: bool,
        blocking: bool,
    ) -> Result<Enqueued, i32> {
        let list: Vec<cl_event> = wait.iter().map(|event| event.0 as cl_event).collect();
        let mut event: cl_event = std::ptr::null_mut();
        let tail = Tail {
            queue: queue.0 as cl_command_queue,
            blocking: u32::from(blocking),
            count: u32::try_from(list.len()).map_err(|_| MISSING)?,
            wait: if list.is_empty() { std::ptr::null() } else { list.as_ptr() },
            event: if wants_event { &raw mut event } else { std::ptr::null_mut() },
        };
        let mut area = None;
        match what {
            Call::Map { mem, svm, offset, len, mode } => {
                let address = self.map(&tail, *mem, *svm, (*offset, *len), *mode)?;
                area = Some(self.areas.write().mapping(address, *len));
            }
            Call::Launch { thread, kernel, a, b, count, seed, spin } => {
                let made = self.kernel(queue, *thread, Some(*kernel))?;
                self.arguments(
                    made,
                    *kernel,
                    a,
                    b.as_ref(),
                    [*count, *seed as usize, *spin as usize],
                )?;
                self.launch(&tail, made, count.div_ceil(GROUP) * GROUP, GROUP)?;
            }
            Call::TooBig { thread, source, scratch, seed, local_bytes } => {
                let made = self.kernel(queue, *thread, None)?;
                self.argument_mem(made, 0, *source)?;
                self.argument_mem(made, 1, *scratch)?;
                let bytes = usize::try_from(*local_bytes).map_err(|_| MISSING)?;
                code(call!(self, clSetKernelArg(made, 2, bytes, std::ptr::null())))?;
                self.argument_word(made, 3, *seed)?;
                self.launch(&tail, made, 1, 1)?;
            }
            Call::Unmap { mem, svm, area } => self.unmap(&tail, *mem, *svm, *area)?,
            Call::Marker => {
                code(call!(
                    self,
                    clEnqueueMarkerWithWaitList(tail.queue, tail.count, tail.wait, tail.event)
                ))?;
            }
            Call::Barrier => {
                code(call!(
                    self,
                    clEnqueueBarrierWithWaitList(tail.queue, tail.count, tail.wait, tail.event)
                ))?;
            }
            Call::SvmCopy { .. } | Call::SvmFill { .. } => self.svm(&tail, what)?,
            Call::ReadImage { .. }
            | Call::WriteImage { .. }
            | Call::FillImage { .. }
            | Call::ImageToBuffer { .. }
            | Call::BufferToImage { .. } => self.image(&tail, what)?,
            _ => self.buffer(&tail, what)?,
        }
        Ok(Enqueued { event: wants_event.then_some(Handle(event as usize)), area })
    }

    fn buffer(&self, tail: &Tail, what: &Call) -> Result<(), i32> {
        let &Tail { queue, blocking, count, wait, event } = tail;
        code(match what {
            Call::Read { mem, offset, len, to } => {
                let (mem, at) = (mem.0 as cl_mem, self.place(*to, *len)?);
                call!(
                    self,
                    clEnqueueReadBuffer(
                        queue, mem, blocking, *offset, *len, at, count, wait, event
                    )
                )
            }
            Call::Write { mem, offset, len, from } => {
                let (mem, at) = (mem.0 as cl_mem, self.place(*from, *len)?);
                call!(
                    self,
                    clEnqueueWriteBuffer(
                        queue, mem, blocking, *offset, *len, at, count, wait, event
                    )
                )
            }
            Call::ReadRect { mem, rect, to: at } | Call::WriteRect { mem, rect, from: at } => {
                let (mem, at) = (mem.0 as cl_mem, self.place(*at, rect.other_span())?);
                let own = [rect.mem_offset % rect.mem_pitch, rect.mem_offset / rect.mem_pitch, 0];
                let (other, region) = ([0_usize; 3], [rect.width, rect.height, 1]);
                let (own, other, region) = (own.as_ptr(), other.as_ptr(), region.as_ptr());
                let (pitch, far) = (rect.mem_pitch, rect.other_pitch);
                if matches!(what, Call::ReadRect { .. }) {
                    call!(
                        self,
                        clEnqueueReadBufferRect(
                            queue, mem, blocking, own, other, region, pitch, 0, far, 0, at, count,
                            wait, event
                        )
                    )
                } else {
                    call!(
                        self,
                        clEnqueueWriteBufferRect(
                            queue, mem, blocking, own, other, region, pitch, 0, far, 0, at, count,
                            wait, event
                        )
                    )
                }
            }
            Call::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = (from.0 as cl_mem, to.0 as cl_mem);
                call!(
                    self,
                    clEnqueueCopyBuffer(
                        queue,
                        from,
                        to,
                        *from_offset,
                        *to_offset,
                        *len,
                        count,
                        wait,
                        event
                    )
                )
            }
            Call::CopyRect { from, to, to_offset, rect } => {
                let (from, to) = (from.0 as cl_mem, to.0 as cl_mem);
                let own = [rect.mem_offset % rect.mem_pitch, rect.mem_offset / rect.mem_pitch, 0];
                let other = [to_offset % rect.other_pitch, to_offset / rect.other_pitch, 0];
                let region = [rect.width, rect.height, 1];
                let (own, other, region) = (own.as_ptr(), other.as_ptr(), region.as_ptr());
                let (pitch, far) = (rect.mem_pitch, rect.other_pitch);
                call!(
                    self,
                    clEnqueueCopyBufferRect(
                        queue, from, to, own, other, region, pitch, 0, far, 0, count, wait, event
                    )
                )
            }
            Call::Fill { mem, offset, len, word } => {
                let (mem, word) = (mem.0 as cl_mem, std::ptr::from_ref(word).cast::<c_void>());
                call!(
                    self,
                    clEnqueueFillBuffer(queue, mem, word, 4, *offset, *len, count, wait, event)
                )
            }
            Call::Migrate { mems, to_host, undefined } => {
                let list: Vec<cl_mem> = mems.iter().map(|mem| mem.0 as cl_mem).collect();
                let mut flags = 0;
                if *to_host {
                    flags |= sys::CL_MIGRATE_MEM_OBJECT_HOST;
                }
                if *undefined {
                    flags |= sys::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
                }
                let len = u32::try_from(list.len()).map_err(|_| MISSING)?;
                call!(
                    self,
                    clEnqueueMigrateMemObjects(
                        queue,
                        len,
                        list.as_ptr(),
                        flags,
                        count,
                        wait,
                        event
                    )
                )
            }
            _ => MISSING,
        })
    }

    fn image(&self, tail: &Tail, what: &Call) -> Result<(), i32> {
        let &Tail { queue, blocking, count, wait, event } = tail;
        let origin = [0_usize; 3];
        let zero = origin.as_ptr();
        code(match what {
            Call::ReadImage { mem, width, height, to: at }
            | Call::WriteImage { mem, width, height, from: at } => {
                let region = [*width, *height, 1];
                let (mem, region) = (mem.0 as cl_mem, region.as_ptr());
                let at = self.place(*at, width * height * 4)?;
                if matches!(what, Call::ReadImage { .. }) {
                    call!(
                        self,
                        clEnqueueReadImage(
                            queue, mem, blocking, zero, region, 0, 0, at, count, wait, event
                        )
                    )
                } else {
                    call!(
                        self,
                        clEnqueueWriteImage(
                            queue, mem, blocking, zero, region, 0, 0, at, count, wait, event
                        )
                    )
                }
            }
            Call::FillImage { mem, width, height, word } => {
                let region = [*width, *height, 1];
                let color = word.to_le_bytes().map(u32::from);
                let (mem, color) = (mem.0 as cl_mem, color.as_ptr().cast::<c_void>());
                call!(
                    self,
                    clEnqueueFillImage(
                        queue,
                        mem,
                        color,
                        zero,
                        region.as_ptr(),
                        count,
                        wait,
                        event
                    )
                )
            }
            Call::ImageToBuffer { image, width, height, mem, offset } => {
                let region = [*width, *height, 1];
                let (image, mem, region) = (image.0 as cl_mem, mem.0 as cl_mem, region.as_ptr());
                call!(
                    self,
                    clEnqueueCopyImageToBuffer(
                        queue, image, mem, zero, region, *offset, count, wait, event
                    )
                )
            }
            Call::BufferToImage { mem, offset, image, width, height } => {
                let region = [*width, *height, 1];
                let (image, mem, region) = (image.0 as cl_mem, mem.0 as cl_mem, region.as_ptr());
                call!(
                    self,
                    clEnqueueCopyBufferToImage(
                        queue, mem, image, *offset, zero, region, count, wait, event
                    )
                )
            }
            _ => MISSING,
        })
    }

    fn svm(&self, tail: &Tail, what: &Call) -> Result<(), i32> {
        let &Tail { queue, blocking, count, wait, event } = tail;
        code(match what {
            Call::SvmCopy { to, from, len } => {
                let end = |end: &End| match end {
                    End::Svm { mem, offset } => Ok((mem.0 + offset) as *mut c_void),
                    End::Host(at) => self.place(*at, *len),
                };
                let (to, from) = (end(to)?, end(from)?);
                call!(self, clEnqueueSVMMemcpy(queue, blocking, to, from, *len, count, wait, event))
            }
            Call::SvmFill { mem, offset, len, word } => {
                let to = (mem.0 + offset) as *mut c_void;
                let word = std::ptr::from_ref(word).cast::<c_void>();
                call!(self, clEnqueueSVMMemFill(queue, to, word, 4, *len, count, wait, event))
            }
            _ => MISSING,
        })
    }

    fn map(
        &self,
        tail: &Tail,
        mem: Handle,
        svm: bool,
        (offset, len): (usize, usize),
        mode: MapMode,
    ) -> Result<usize, i32> {
        let &Tail { queue, blocking, count, wait, event } = tail;
        let flags = match mode {
            MapMode::Read => sys::CL_MAP_READ,
            MapMode::Write => sys::CL_MAP_WRITE,
            MapMode::Both => sys::CL_MAP_READ | sys::CL_MAP_WRITE,
            MapMode::Invalidate => sys::CL_MAP_WRITE_INVALIDATE_REGION,
        };
        if svm {
            let address = mem.0 + offset;
            let at = address as *mut c_void;
            code(call!(
                self,
                clEnqueueSVMMap(queue, blocking, flags, at, len, count, wait, event)
            ))?;
            return Ok(address);
        }
        let (mem, mut error) = (mem.0 as cl_mem, 0);
        let at = call!(
            self,
            clEnqueueMapBuffer(
                queue,
                mem,
                blocking,
                flags,
                offset,
                len,
                count,
                wait,
                event,
                &raw mut error
            )
        );
        code(error)?;
        Ok(at as usize)
    }

    fn unmap(&self, tail: &Tail, mem: Handle, svm: bool, area: Handle) -> Result<(), i32> {
        let &Tail { queue, count, wait, event, .. } = tail;
        let start = self.areas.write().remove(area).ok_or(MISSING)?;
        let at = start as *mut c_void;
        code(if svm {
            call!(self, clEnqueueSVMUnmap(queue, at, count, wait, event))
        } else {
            call!(self, clEnqueueUnmapMemObject(queue, mem.0 as cl_mem, at, count, wait, event))
        })
    }

    /// Sets the arguments in the order of all kernels: `a`, `b` if there is one, their offsets, the
    /// count, the seed, and for the slow kernel its duration.
    fn arguments(
        &self,
        kernel: cl_kernel,
        kind: Kernel,
        a: &Argument,
        b: Option<&Argument>,
        [count, seed, spin]: [usize; 3],
    ) -> Result<(), i32> {
        let mut index = 0;
        for argument in [Some(a), b].into_iter().flatten() {
            if argument.svm {
                let at = argument.mem.0 as *const c_void;
                code(call!(self, clSetKernelArgSVMPointer(kernel, index, at)))?;
            } else {
                self.argument_mem(kernel, index, argument.mem)?;
            }
            index += 1;
        }
        let mut words = vec![a.offset];
        words.extend(b.map(|b| b.offset));
        words.extend([count, seed]);
        if kind == Kernel::Slow {
            words.push(spin);
        }
        for word in words {
            self.argument_word(kernel, index, u32::try_from(word).map_err(|_| MISSING)?)?;
            index += 1;
        }
        Ok(())
    }

    fn argument_mem(&self, kernel: cl_kernel, index: u32, mem: Handle) -> Result<(), i32> {
        let place = (&raw const mem.0).cast::<c_void>();
        code(call!(self, clSetKernelArg(kernel, index, size_of::<cl_mem>(), place)))
    }

    fn argument_word(&self, kernel: cl_kernel, index: u32, word: u32) -> Result<(), i32> {
        let place = (&raw const word).cast::<c_void>();
        code(call!(self, clSetKernelArg(kernel, index, 4, place)))
    }

    fn launch(
        &self,
        tail: &Tail,
        kernel: cl_kernel,
        global: usize,
        local: usize,
    ) -> Result<(), i32> {
        let &Tail { queue, count, wait, event, .. } = tail;
        let (global, local, none) = (&raw const global, &raw const local, std::ptr::null());
        code(call!(
            self,
            clEnqueueNDRangeKernel(queue, kernel, 1, none, global, local, count, wait, event)
        ))
    }
}
