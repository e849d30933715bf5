//! Tests of the back end over CUDA's driver beside the platforms of an ICD loader. The driver is
//! older than CUDA 12.4.

mod cuda_common;

use cuda_common::*;
use penstock_device::{Arg, Context, Driver, Event, Queue, Status, Want};
use penstock_trial::{Need, skip};
use penstock_wire::cuda;

const SETUP: Setup = Setup { newer: false, loader: true };

#[test]
fn a_program_runs_beside_the_loader() {
    let Some((context, queue)) = first(SETUP, PROFILING) else { return };
    let [a, b] = [30, 12].map(|value| words(&context, &queue, 5000, value));
    let c = buffer(&context, 20_000);
    let gate = Event::user(&context).unwrap();
    let kernel = adder(&context, [&a, &b, &c]);
    let event = queue.launch(&kernel, &one(), &[&gate], Want::Event).unwrap().unwrap();
    let copy = kernel.duplicate().unwrap();
    gate.complete(Status::OK).unwrap();
    let (status, times) = completion(&event).recv_timeout(patience()).unwrap();
    assert_eq!(status, Status::OK);
    assert!(times.ended > 0);
    assert!(all_words_are(&queue, &c, 42));
    queue.fill(&c, &[0], 0, c.size(), &[], Want::Nothing).unwrap();
    queue.launch(&copy, &one(), &[], Want::Nothing).unwrap();
    assert!(all_words_are(&queue, &c, 42));
    queue.migrate(&[&a], 0, &[], Want::Nothing).unwrap();
    queue.barrier(&[], Want::Nothing).unwrap();
    queue.finish().unwrap();
}

#[test]
fn an_older_driver_tells_less_of_kernels() {
    let Some((context, _)) = first(SETUP, 0) else { return };
    let (program, built) = program(&context, MODULE);
    built.unwrap();
    let report = program.report(Ok(()), &[(0, context.devices()[0].clone())]);
    // The names are from the module's text.
    let names: Vec<&str> = report.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["add", "sleep_ns", "shape", "trap", "empty"]);
    assert_eq!(report.kernels[0].function.as_ref().unwrap().params, None);
    // The back end then accepts parameters of any size.
    let kernel = kernel(&context, "add");
    kernel.set(cuda::ARG_PARAMS, Arg::Bytes(&[0; 3])).unwrap();
}

#[test]
fn objects_of_two_drivers_do_not_mix() {
    let Some((context, queue)) = first(SETUP, 0) else { return };
    let mem = buffer(&context, 64);
    let platforms = Driver::load().unwrap().platforms();
    let opencl = platforms.iter().find(|it| !it.is_cuda() && !it.devices().is_empty());
    let Some(platform) = opencl else {
        return skip(Need::OpenCl, "no OpenCL device beside the stand-in");
    };
    let device = platform.devices()[0].clone();
    let other = cuda_common::context(platform, &device);
    let other_queue = Queue::new(&other, &device, 0, 0).unwrap();
    let other_mem = buffer(&other, 64);
    let wrong = Err(Status::INVALID_CONTEXT);
    assert_eq!(queue.fill(&other_mem, &[1], 0, 64, &[], Want::Nothing), wrong);
    assert_eq!(other_queue.fill(&mem, &[1], 0, 64, &[], Want::Nothing), wrong);
    let gate = Event::user(&other).unwrap();
    assert_eq!(queue.marker(&[&gate], Want::Nothing), wrong);
    gate.complete(Status::OK).unwrap();
    let kernel = kernel(&context, "empty");
    assert_eq!(other_queue.launch(&kernel, &one(), &[], Want::Nothing), wrong);
    assert_eq!(kernel.set(cuda::ARG_HEAP, Arg::Mem(Some(&other_mem))), wrong.map(|_| ()));
    assert_eq!(Queue::new(&context, &device, 0, 0).err(), Some(Status::INVALID_DEVICE));
    assert_eq!(Queue::new(&other, &context.devices()[0], 0, 0).err(), Some(Status::INVALID_DEVICE));
    let both = [device, context.devices()[0].clone()];
    let mixed = Context::new(platform, &both, Box::new(|_| ()));
    assert_eq!(mixed.err(), Some(Status::INVALID_DEVICE));
}
