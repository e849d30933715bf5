use super::kernel::parameter_words;
use super::writer::Writer;
use crate::ir::{Axis, Special, Type};

const fn dimension(axis: Axis) -> Option<u32> {
    match axis {
        Axis::X => Some(0),
        Axis::Y => Some(1),
        Axis::Z => Some(2),
        Axis::W => None,
    }
}

impl Writer<'_> {
    /// Returns the C expression of a read-only register, and its type.
    pub(super) fn special(&mut self, special: Special) -> (String, Type) {
        let call = |function: &str, axis: Axis, fourth: u32| match dimension(axis) {
            Some(dimension) => format!("(uint){function}({dimension})"),
            None => format!("{fourth}u"),
        };
        let text = match special {
            Special::Tid(axis) => call("get_local_id", axis, 0),
            Special::Ntid(axis) => call("get_local_size", axis, 1),
            Special::Ctaid(axis) | Special::Clusterid(axis) => call("get_group_id", axis, 0),
            Special::Nctaid(axis) | Special::Nclusterid(axis) => call("get_num_groups", axis, 1),
            Special::Laneid => self.linear("(lid & 31u)"),
            Special::Warpid => self.linear("(lid >> 5)"),
            Special::LanemaskEq => self.linear("(1u << (lid & 31u))"),
            Special::LanemaskLe => self.linear("(0xffffffffu >> (31u - (lid & 31u)))"),
            Special::LanemaskLt => self.linear("((1u << (lid & 31u)) - 1u)"),
            Special::LanemaskGe => self.linear("(0xffffffffu << (lid & 31u))"),
            Special::LanemaskGt => self.linear("((0xffffffffu << (lid & 31u)) << 1)"),
            Special::Nwarpid => String::from("32u"),
            // Every block counts as running on its own multiprocessor.
            Special::Smid => String::from(
                "(uint)(get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2)))",
            ),
            Special::Nsmid => {
                String::from("(uint)(get_num_groups(0) * get_num_groups(1) * get_num_groups(2))")
            }
            Special::Gridid => return (String::from("0UL"), Type::U64),
            Special::Clock => String::from("(uint)ps_clock(AT(control))"),
            Special::ClockHi => String::from("(uint)(ps_clock(AT(control)) >> 32)"),
            Special::Clock64 => return (String::from("ps_clock(AT(control))"), Type::U64),
            Special::Globaltimer => {
                return (String::from("ps_nanoseconds(AT(control))"), Type::U64);
            }
            Special::GlobaltimerLo => String::from("(uint)ps_nanoseconds(AT(control))"),
            Special::GlobaltimerHi => String::from("(uint)(ps_nanoseconds(AT(control)) >> 32)"),
            Special::DynamicSmemSize => self.dynamic_bytes(),
            Special::TotalSmemSize => {
                format!("({}u + {})", self.entry.static_shared, self.dynamic_bytes())
            }
            Special::Envreg(_) | Special::ClusterCtaid(_) | Special::ClusterCtarank => {
                String::from("0u")
            }
            Special::ClusterNctaid(_) | Special::ClusterNctarank => String::from("1u"),
        };
        (text, Type::U32)
    }

    /// Returns the value that the launch stored behind the parameters; see
    /// [`super::kernel::TranslatedKernel::dynamic_bytes_at`].
    pub(super) fn dynamic_bytes(&mut self) -> String {
        self.uses_dynamic_size = true;
        format!("(uint)p.w[{}]", parameter_words(self.entry))
    }

    fn linear(&mut self, text: &str) -> String {
        self.uses_lid = true;
        text.to_owned()
    }
}
