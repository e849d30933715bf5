//! Writes a program as PTX.

use super::program::{
    Change, LANES, Operation, Place, Program, Question, REGISTERS, Statement, WORDS,
};

/// Bytes of a thread's result: whether it reached the end, its registers, and three words of shared
/// memory.
pub const THREAD_BYTES: u64 = 4 * (1 + REGISTERS as u64 + 3);

/// Writes statements, with unique labels.
struct Writer {
    text: String,
    labels: u32,
    predicates: u32,
    temporaries: u32,
    wides: u32,
    /// Whether the block is a single warp, so that addresses need no offset of the warp.
    is_single: bool,
}

/// Returns the kernel of a program, with this name.
pub fn kernel(program: &Program, name: &str) -> String {
    let mut writer = Writer {
        text: String::new(),
        labels: 0,
        predicates: 0,
        temporaries: 0,
        wides: 0,
        is_single: program.threads <= LANES,
    };
    writer.begin();
    writer.body(&program.body, &[]);
    writer.end();
    let Writer { text, predicates, temporaries, wides, .. } = writer;
    let warps = program.threads.div_ceil(LANES);
    format!(
        ".visible .entry {name}(.param .u64 out)\n{{\n.shared .align 4 .b8 {name}_words[{}];\n\
         .reg .pred %p<{}>; .reg .b32 %x<{}>, %v<{REGISTERS}>, %t, %lane, %warp, %all, %words, %c<9>, %here; .reg .b64 %out, %at, %g<{}>;\n{}}}\n",
        warps * WORDS * 4,
        predicates + 1,
        temporaries + 1,
        wides + 1,
        text.replace("WORDS", &format!("{name}_words"))
    )
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn predicate(&mut self) -> String {
        self.predicates += 1;
        format!("%p{}", self.predicates)
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("%x{}", self.temporaries)
    }

    fn begin(&mut self) {
        self.line("ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out; mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5; mov.u32 %all, WORDS;");
        let pitch = if self.is_single { 0 } else { WORDS * 4 };
        self.line(&format!("mad.lo.u32 %words, %warp, {pitch}, %all;"));
        for register in 0..REGISTERS {
            let constant = u32::try_from(register).expect("small").wrapping_mul(0x85eb_ca77);
            let (one, other) = (self.temporary(), self.temporary());
            self.line(&format!(
                "mad.lo.u32 {one}, %t, {}, {constant}; shl.b32 {other}, %t, 3; xor.b32 %v{register}, {one}, {other};",
                0x9e37_79b1_u32
            ));
        }
        // Every lane writes initial values, and a barrier follows.
        let (fill, more, done) = (self.temporary(), self.predicate(), self.label());
        let (value, place) = (self.temporary(), self.temporary());
        let again = self.label();
        self.line(&format!(
            "mov.u32 {fill}, %lane; {again}: setp.ge.u32 {more}, {fill}, {WORDS}; @{more} bra {done};\n\
             mul.lo.u32 {value}, {fill}, {}; xor.b32 {value}, {value}, 85; shl.b32 {place}, {fill}, 2; add.u32 {place}, {place}, %words;\n\
             st.shared.u32 [{place}], {value}; add.u32 {fill}, {fill}, STEP; bra {again}; {done}: bar.sync 0;",
            0x0101_6b37_u32
        ));
    }

    fn end(&mut self) {
        self.line("bar.warp.sync -1;");
        self.line(&format!(
            "mul.wide.u32 %at, %t, {THREAD_BYTES}; add.s64 %at, %out, %at; st.global.u32 [%at], 1;"
        ));
        for register in 0..REGISTERS {
            self.line(&format!("st.global.u32 [%at+{}], %v{register};", 4 + 4 * register));
        }
        let place = self.temporary();
        self.line(&format!("shl.b32 {place}, %lane, 2; add.u32 {place}, {place}, %words;"));
        for part in 0..3 {
            let (value, word, is_in) = (self.temporary(), self.temporary(), self.predicate());
            self.line(&format!(
                "add.u32 {word}, %lane, {}; setp.lt.u32 {is_in}, {word}, {WORDS}; mov.u32 {value}, 0; @{is_in} ld.shared.u32 {value}, [{place}+{}]; st.global.u32 [%at+{}], {value};",
                32 * part,
                128 * part,
                4 + 4 * (REGISTERS + part)
            ));
        }
        self.line("OVER: ret;");
    }

    /// Returns the address of a word, in brackets.
    fn place(&mut self, place: Place) -> String {
        let index = self.temporary();
        match place {
            Place::Own(more) => {
                let address = self.temporary();
                let thread = if self.is_single { "%t" } else { "%lane" };
                self.line(&format!(
                    "shl.b32 {index}, {thread}, 2; add.u32 {address}, {index}, %words;"
                ));
                return format!("{address}+{}", 4 * more);
            }
            Place::Crossed(bits) => self.line(&format!("xor.b32 {index}, %lane, {bits};")),
            Place::Permuted(times, more) => {
                let whole = self.temporary();
                self.line(&format!(
                    "mad.lo.u32 {whole}, %lane, {times}, {more}; and.b32 {index}, {whole}, 31;"
                ));
            }
            Place::Fixed(word) => return format!("%words+{}", 4 * word),
            Place::Told(register) => self.line(&format!("and.b32 {index}, %v{register}, 63;")),
        }
        let (bytes, address) = (self.temporary(), self.temporary());
        self.line(&format!("shl.b32 {bytes}, {index}, 2; add.u32 {address}, {bytes}, %words;"));
        address
    }

    fn question(&mut self, question: Question) -> String {
        let (yes, value) = (self.predicate(), self.temporary());
        match question {
            Question::Below(end) => self.line(&format!("setp.lt.u32 {yes}, %lane, {end};")),
            Question::HasBit(bit) => {
                self.line(&format!(
                    "and.b32 {value}, %lane, {bit}; setp.ne.u32 {yes}, {value}, 0;"
                ));
            }
            Question::Is(lane) => self.line(&format!("setp.eq.u32 {yes}, %lane, {lane};")),
            Question::Bits(register, from, wanted) => self.line(&format!(
                "bfe.u32 {value}, %v{register}, {from}, 2; setp.eq.u32 {yes}, {value}, {wanted};"
            )),
            Question::Odd(place) => {
                let place = self.place(place);
                self.line(&format!("ld.shared.u32 {value}, [{place}]; and.b32 {value}, {value}, 1; setp.ne.u32 {yes}, {value}, 0;"));
            }
        }
        yes
    }

    /// Writes statements. `loops` has the labels behind a turn and behind a loop, the innermost
    /// loop last.
    fn body(&mut self, body: &[Statement], loops: &[(String, String)]) {
        for statement in body {
            self.statement(statement, loops);
        }
    }

    fn statement(&mut self, statement: &Statement, loops: &[(String, String)]) {
        let leave = |way: fn(&(String, String)) -> &String| {
            loops.last().map_or("OVER", |labels| way(labels))
        };
        match statement {
            Statement::If(question, yes, no) => {
                let (holds, other, behind) = (self.question(*question), self.label(), self.label());
                self.line(&format!("@!{holds} bra {other};"));
                self.body(yes, loops);
                if !no.is_empty() {
                    self.line(&format!("bra {behind};"));
                }
                self.line(&format!("{other}:"));
                self.body(no, loops);
                self.line(&format!("{behind}:"));
            }
            Statement::Loop { turns, at_head, body } => self.turns(*turns, *at_head, body, loops),
            Statement::BreakIf(question) => {
                let holds = self.question(*question);
                let to = leave(|labels| &labels.1).to_owned();
                self.line(&format!("@{holds} bra {to};"));
            }
            Statement::ContinueIf(question) => {
                let holds = self.question(*question);
                let to = leave(|labels| &labels.0).to_owned();
                self.line(&format!("@{holds} bra {to};"));
            }
            Statement::ExitIf(question) => {
                let holds = self.question(*question);
                self.line(&format!("@{holds} bra OVER;"));
            }
            simple => self.simple(simple),
        }
    }

    fn turns(&mut self, turns: u32, at_head: bool, body: &[Statement], loops: &[(String, String)]) {
        let count = format!("%c{}", loops.len());
        let (head, latch, behind) = (self.label(), self.label(), self.label());
        let more = self.predicate();
        let mut inside = loops.to_vec();
        if at_head {
            self.line(&format!("mov.u32 {count}, 0;\n{head}: setp.ge.u32 {more}, {count}, {turns}; @{more} bra {behind}; add.u32 {count}, {count}, 1;"));
            inside.push((head.clone(), behind.clone()));
            self.body(body, &inside);
            self.line(&format!("bra {head};\n{behind}:"));
        } else {
            self.line(&format!("mov.u32 {count}, 0;\n{head}:"));
            inside.push((latch.clone(), behind.clone()));
            self.body(body, &inside);
            self.line(&format!("{latch}: add.u32 {count}, {count}, 1; setp.lt.u32 {more}, {count}, {turns}; @{more} bra {head};\n{behind}:"));
        }
    }

    fn simple(&mut self, statement: &Statement) {
        let volatile = |is: bool| if is { ".volatile" } else { "" };
        match *statement {
            Statement::Compute(to, operation, one, other) => self.line(&match operation {
                Operation::Add => format!("add.u32 %v{to}, %v{one}, %v{other};"),
                Operation::Sub => format!("sub.u32 %v{to}, %v{one}, %v{other};"),
                Operation::Xor => format!("xor.b32 %v{to}, %v{one}, %v{other};"),
                Operation::Times(times) => {
                    format!("mad.lo.u32 %v{to}, %v{one}, {times}, %v{other};")
                }
            }),
            Statement::Load { to, from, volatile: is, generic } => {
                let place = self.place(from);
                let (address, more) = place.split_once('+').unwrap_or((&place, "0"));
                if generic {
                    self.wides += 2;
                    let (wide, window) =
                        (format!("%g{}", self.wides - 1), format!("%g{}", self.wides));
                    self.line(&format!("cvt.u64.u32 {wide}, {address}; cvta.shared.u64 {window}, {wide}; ld{}.u32 %v{to}, [{window}+{more}];", volatile(is)));
                } else {
                    self.line(&format!(
                        "ld{}.shared.u32 %v{to}, [{address}+{more}];",
                        volatile(is)
                    ));
                }
            }
            Statement::Store { to, from, volatile: is } => {
                let place = self.place(to);
                self.line(&format!("st{}.shared.u32 [{place}], %v{from};", volatile(is)));
            }
            Statement::Change { at, how, from } => {
                let place = self.place(at);
                let how = match how {
                    Change::Add => "add.u32",
                    Change::Max => "max.u32",
                    Change::Or => "or.b32",
                };
                self.line(&format!("red.shared.{how} [{place}], %v{from};"));
            }
            Statement::Ballot(to, question) => {
                let yes = self.question(question);
                self.line(&format!("vote.ballot.b32 %v{to}, {yes};"));
            }
            Statement::Shuffle { to, from, by } => {
                self.line(&format!("shfl.bfly.b32 %v{to}, %v{from}, {by}, 31;"));
            }
            Statement::Active(to) => self.line(&format!("activemask.b32 %v{to};")),
            Statement::Meet => self.line("bar.warp.sync -1;"),
            _ => {}
        }
    }
}
