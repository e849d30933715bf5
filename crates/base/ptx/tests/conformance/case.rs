//! A test case (a form of an instruction, its operands and the expected result), and the kernel
//! that runs many cases at once.

use std::fmt::Write as _;

use crate::machine::{BASE, FREE, Machine};
use penstock_trial::Random;

/// Tuples of operands for each case: enough for every pair of edge values.
const TUPLES: usize = 1024;

const THREADS: u64 = 64;

/// Cases in one kernel: many, so that few programs must be built, but not too many for compilers
/// that are slow with long functions.
const CASES_PER_KERNEL: usize = 24;

/// Bytes of a value in memory, for every type.
const SLOT: usize = 8;

/// Largest number of differences that a report shows.
const SHOWN_MAX: usize = 3;

/// Edge values of floating-point numbers.
const EDGES_FLOAT: [f32; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    3.0,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    2_147_483_648.0,
    -2_147_483_904.0,
    4_294_967_296.0,
    16_777_217.0,
    9.3e18,
    255.5,
    127.5,
    0.499_999_97,
    1e-40,
    65520.0,
    1e-7,
];

/// Edge values of 32-bit integers.
const EDGES_I32: [u64; 14] = [
    0,
    1,
    2,
    7,
    0xffff_ffff,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff,
    0x10000,
    0x80,
    0xff,
    0x00ff_ffff,
    0x0080_0000,
];

/// Edge values of 64-bit integers.
const EDGES_I64: [u64; 13] = [
    0,
    1,
    2,
    u64::MAX,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    0xffff_ffff,
    1 << 32,
    0x8000_0000,
    0xffff_ffff_8000_0000,
    1 << 53,
    (1 << 53) + 1,
];

/// Edge values of counts: of bits, shifts and fields.
const EDGES_COUNT: [u64; 21] = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    23,
    31,
    32,
    33,
    47,
    63,
    64,
    65,
    255,
    256,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];

/// Type of the value in a case's register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum T {
    Pred,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
    /// A count or position, mostly a small one.
    Count,
}

impl T {
    fn register(self) -> &'static str {
        match self {
            Self::Pred => "pred",
            Self::I16 | Self::F16 | Self::Bf16 => "b16",
            Self::I32 | Self::F16x2 | Self::Bf16x2 | Self::Count => "b32",
            Self::I64 => "b64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    fn load(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I16 | Self::F16 | Self::Bf16 => "b16",
            Self::I64 => "b64",
            _ => "b32",
        }
    }

    /// Returns the edge values of the type.
    fn edges(self) -> Vec<u64> {
        match self {
            Self::Pred => vec![0, 1],
            Self::I16 => vec![0, 1, 2, 0xffff, 0x7fff, 0x8000, 0x8001, 0x00ff, 0x0080, 0xff00],
            Self::I32 => EDGES_I32.to_vec(),
            Self::I64 => EDGES_I64.to_vec(),
            Self::Count => EDGES_COUNT.to_vec(),
            Self::F16 => vec![
                0, 0x8000, 0x3c00, 0xbc00, 0x3800, 0x0001, 0x8001, 0x0400, 0x7bff, 0xfbff, 0x7c00,
                0xfc00, 0x7e00, 0x3555, 0x4200, 0x03ff,
            ],
            Self::Bf16 => vec![
                0, 0x8000, 0x3f80, 0xbf80, 0x3f00, 0x0001, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
                0x7fc0, 0x4049,
            ],
            Self::F16x2 => Self::F16
                .edges()
                .iter()
                .enumerate()
                .map(|(index, low)| low | (Self::F16.edges()[(index * 7 + 3) % 16] << 16))
                .collect(),
            Self::Bf16x2 => Self::Bf16
                .edges()
                .iter()
                .enumerate()
                .map(|(index, low)| low | (Self::Bf16.edges()[(index * 5 + 3) % 13] << 16))
                .collect(),
            Self::F32 => EDGES_FLOAT.map(|value: f32| u64::from(value.to_bits())).to_vec(),
            Self::F64 => EDGES_FLOAT
                .map(|value| f64::from(value).to_bits())
                .into_iter()
                .chain(
                    [f64::MAX, f64::MIN_POSITIVE, 9.223_372_036_854_776e18, -9.3e18, 1.8e19, 0.1]
                        .map(f64::to_bits),
                )
                .collect(),
        }
    }

    fn random(self, random: &mut Random) -> u64 {
        let bits = random.number();
        match self {
            Self::Pred => bits & 1,
            Self::I16 | Self::F16 | Self::Bf16 => bits & 0xffff,
            Self::I64 => {
                if bits & 1 == 0 {
                    bits
                } else {
                    bits >> (bits >> 58)
                }
            }
            Self::Count => bits % 70,
            Self::I32 => {
                if bits & 1 == 0 {
                    bits >> 32
                } else {
                    (bits >> 32) >> (bits >> 59 & 31)
                }
            }
            Self::F16x2 | Self::Bf16x2 => bits >> 32,
            // Half of the values are arbitrary, half are near 1.
            Self::F32 if bits & 1 == 0 => bits >> 32,
            Self::F32 => u64::from(((bits >> 40) as f32 / 1_048_576.0 - 8.0).to_bits()),
            Self::F64 if bits & 1 == 0 => bits.rotate_left(7),
            Self::F64 => ((bits >> 11) as f64 / 2f64.powi(49) - 8.0).to_bits(),
        }
    }

    /// Whether two results are the same. All NaNs count as the same.
    fn same(self, a: u64, b: u64) -> bool {
        let nan = |bits: u64| match self {
            Self::F32 => f32::from_bits(bits as u32).is_nan(),
            Self::F64 => f64::from_bits(bits).is_nan(),
            Self::F16 => bits & 0x7fff > 0x7c00,
            Self::Bf16 => bits & 0x7fff > 0x7f80,
            _ => false,
        };
        match self {
            Self::F16x2 => {
                Self::F16.same(a & 0xffff, b & 0xffff) && Self::F16.same(a >> 16, b >> 16)
            }
            Self::Bf16x2 => {
                Self::Bf16.same(a & 0xffff, b & 0xffff) && Self::Bf16.same(a >> 16, b >> 16)
            }
            _ => a == b || (nan(a) && nan(b)),
        }
    }

    /// Returns a result as a number, to check the allowed error.
    fn number(self, bits: u64) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F16 => crate::number::from_half(bits),
            Self::Bf16 => crate::number::from_brain(bits),
            _ => f64::from_bits(bits),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Expect {
    /// These bits; any NaN for a NaN.
    Bits(u64),
    /// One of these values.
    OneOf(Vec<u64>),
    /// A number that differs from the first by at most the second.
    Near(f64, f64),
    /// PTX does not define the result.
    Any,
}

type Reference = Box<dyn Fn(&[u64]) -> Expect>;

pub struct Case {
    /// Instructions, with `$d`, `$a`, `$b`, `$c`, `$e` for the registers, and `$n` for a number
    /// that is unique to the case.
    pub text: String,
    ins: Vec<T>,
    out: T,
    reference: Reference,
}

impl Case {
    /// Creates a case that has exactly one correct result.
    pub fn new(
        text: impl Into<String>,
        ins: &[T],
        out: T,
        reference: impl Fn(&[u64]) -> u64 + 'static,
    ) -> Self {
        Self::with(text, ins, out, move |values| Expect::Bits(reference(values)))
    }

    /// Creates a case with several correct results, or with a tolerance.
    pub fn with(
        text: impl Into<String>,
        ins: &[T],
        out: T,
        reference: impl Fn(&[u64]) -> Expect + 'static,
    ) -> Self {
        Self { text: text.into(), ins: ins.to_vec(), out, reference: Box::new(reference) }
    }

    /// Returns a module with only this case.
    pub fn text_alone(&self) -> String {
        format!("{HEAD}{}", kernel_text(0, &[self]))
    }

    fn tuples(&self, seed: u64) -> Vec<Vec<u64>> {
        let mut random = Random::new(seed);
        let edges: Vec<Vec<u64>> = self.ins.iter().map(|ty| ty.edges()).collect();
        let combinations: usize = edges.iter().map(Vec::len).product();
        let tuple = |index: usize, random: &mut Random| {
            let mut rest =
                if combinations <= TUPLES * 3 / 4 { index } else { random.number() as usize };
            let only_edges = if combinations <= TUPLES * 3 / 4 {
                index < combinations
            } else {
                index < TUPLES / 2
            };
            let mut values = Vec::new();
            for (ty, edges) in self.ins.iter().zip(&edges) {
                let edge = edges[rest % edges.len()];
                rest /= edges.len();
                values.push(if only_edges || random.number().is_multiple_of(4) {
                    edge
                } else {
                    ty.random(random)
                });
            }
            values
        };
        (0..TUPLES).map(|index| tuple(index, &mut random)).collect()
    }

    /// Appends the part of a kernel for this case. Its operands are at `[%in + place]`.
    fn body(&self, number: usize, body: &mut String) {
        let names = ["a", "b", "c", "e"];
        let _ = writeln!(body, "{{ // {number}");
        let register = |name: &str| format!("%{name}{number}");
        let _ = writeln!(body, ".reg .{} {};", self.out.register(), register("d"));
        for (index, (ty, name)) in self.ins.iter().zip(names).enumerate() {
            let place = (number * 4 + index) * TUPLES * SLOT;
            let _ = writeln!(body, ".reg .{} {};", ty.register(), register(name));
            if *ty == T::Pred {
                let _ = writeln!(
                    body,
                    ".reg .b32 %l{index}_{number};\nld.global.b32 %l{index}_{number}, [%in+{place}];"
                );
                let _ = writeln!(body, "setp.ne.s32 {}, %l{index}_{number}, 0;", register(name));
            } else {
                let _ =
                    writeln!(body, "ld.global.{} {}, [%in+{place}];", ty.load(), register(name));
            }
        }
        let mut text = self.text.replace("$n", &number.to_string());
        for name in ["d", "a", "b", "c", "e"] {
            text = text.replace(&format!("${name}"), &register(name));
        }
        let _ = writeln!(body, "{text}");
        let place = number * TUPLES * SLOT;
        if self.out == T::Pred {
            let _ = writeln!(
                body,
                ".reg .b32 %s{number};\nselp.b32 %s{number}, 1, 0, {};",
                register("d")
            );
            let _ = writeln!(body, "st.global.b32 [%out+{place}], %s{number};\n}}");
        } else {
            let _ = writeln!(
                body,
                "st.global.{} [%out+{place}], {};\n}}",
                self.out.load(),
                register("d")
            );
        }
    }

    /// Compares results with the reference. Returns a description of the differences.
    fn compare(&self, tuples: &[Vec<u64>], results: &[u8]) -> Option<String> {
        let mut wrong = 0;
        let mut shown = String::new();
        for (values, result) in tuples.iter().zip(results.chunks_exact(SLOT)) {
            let got = u64::from_le_bytes(result.try_into().expect("a slot"));
            let expected = (self.reference)(values);
            let fits = match &expected {
                Expect::Bits(bits) => self.out.same(got, *bits),
                Expect::OneOf(all) => all.iter().any(|bits| self.out.same(got, *bits)),
                Expect::Near(value, tolerance) => {
                    let got = self.out.number(got);
                    got == *value
                        || (got.is_nan() && value.is_nan())
                        || (got - value).abs() <= *tolerance
                }
                Expect::Any => true,
            };
            if !fits {
                wrong += 1;
                if wrong <= SHOWN_MAX {
                    let _ = write!(shown, "\n    {values:x?} gives {got:x}, not {expected:x?}");
                }
            }
        }
        (wrong > 0).then(|| format!("{}: {wrong} of {} differ{shown}", self.text, tuples.len()))
    }
}

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

fn kernel_text(name: usize, cases: &[&Case]) -> String {
    let mut body = format!(
        ".visible .entry k{name}(.param .u64 p0, .param .u64 p1)\n{{\n.reg .b64 %in, %out, %at;\n.reg .b32 %i, %n, %t;\n\
         mov.u32 %i, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %t, %tid.x;\nmad.lo.s32 %i, %i, %n, %t;\nmul.wide.s32 %at, %i, {SLOT};\n\
         ld.param.u64 %in, [p0];\nld.param.u64 %out, [p1];\nadd.s64 %in, %in, %at;\nadd.s64 %out, %out, %at;\n"
    );
    for (number, case) in cases.iter().enumerate() {
        case.body(number, &mut body);
    }
    body.push_str("ret;\n}\n");
    body
}

/// Runs all cases on all devices.
pub fn run(family: &str, cases: &[Case]) {
    for machine in crate::machine::machines() {
        let failures = run_on(&machine, cases);
        for failure in &failures {
            eprintln!("{family} on {}: {failure}", machine.name);
        }
        assert!(
            failures.is_empty(),
            "{family} on {}: {} of {} forms differ",
            machine.name,
            failures.len(),
            cases.len()
        );
        eprintln!("{family} on {}: {} forms agree", machine.name, cases.len());
    }
}

fn run_on(machine: &Machine, cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    // A form that cannot be translated must not hide the others.
    let translated: Vec<&Case> = cases
        .iter()
        .filter(|case| {
            let module = penstock_ptx::module::parse(&case.text_alone());
            let module = module.unwrap_or_else(|error| panic!("{}: {error}", case.text));
            match penstock_ptx::translate::translate(&module, &machine.options) {
                Ok(_) => true,
                Err(error) => {
                    failures.push(format!("{}: {error}", case.text));
                    false
                }
            }
        })
        .collect();
    for group in translated.chunks(CASES_PER_KERNEL) {
        match machine.build(&format!("{HEAD}{}", kernel_text(0, group))) {
            Ok(ready) => failures.extend(try_group(machine, &ready, group)),
            // Finds the case that does not build.
            Err(_) => {
                for case in group {
                    match machine.build(&case.text_alone()) {
                        Ok(ready) => failures.extend(try_group(machine, &ready, &[case])),
                        Err(error) => failures.push(format!("{}: {error}", case.text)),
                    }
                }
            }
        }
    }
    failures
}

fn try_group(machine: &Machine, ready: &crate::machine::Ready, group: &[&Case]) -> Vec<String> {
    let tuples: Vec<Vec<Vec<u64>>> =
        group.iter().enumerate().map(|(number, case)| case.tuples(number as u64 + 1)).collect();
    let mut inputs = vec![0u8; group.len() * 4 * TUPLES * SLOT];
    for (number, tuples) in tuples.iter().enumerate() {
        for (thread, values) in tuples.iter().enumerate() {
            for (index, value) in values.iter().enumerate() {
                let at = ((number * 4 + index) * TUPLES + thread) * SLOT;
                inputs[at..at + SLOT].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    let results_bytes = group.len() * TUPLES * SLOT;
    let results_at = FREE + inputs.len() as u64;
    machine.write(FREE, &inputs);
    machine.write(results_at, &vec![0; results_bytes]);
    machine.launch(
        ready,
        "k0",
        &[BASE + FREE, BASE + results_at],
        TUPLES as u64 / THREADS,
        THREADS,
        0,
    );
    let results = machine.read(results_at, results_bytes as u64);
    group
        .iter()
        .zip(&tuples)
        .zip(results.chunks_exact(TUPLES * SLOT))
        .filter_map(|((case, tuples), results)| case.compare(tuples, results))
        .collect()
}
