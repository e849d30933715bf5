use crate::ir::{Axis, Special};

const ENVREG_MAX: u8 = 31;

/// Returns the read-only register with that name and component.
pub(super) fn find(name: &str, component: Option<&str>) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    if let Some(component) = component {
        let axis = match component {
            "x" => Axis::X,
            "y" => Axis::Y,
            "z" => Axis::Z,
            "w" => Axis::W,
            _ => return None,
        };
        return Some(match name {
            "tid" => Special::Tid(axis),
            "ntid" => Special::Ntid(axis),
            "ctaid" => Special::Ctaid(axis),
            "nctaid" => Special::Nctaid(axis),
            "clusterid" => Special::Clusterid(axis),
            "nclusterid" => Special::Nclusterid(axis),
            "cluster_ctaid" => Special::ClusterCtaid(axis),
            "cluster_nctaid" => Special::ClusterNctaid(axis),
            _ => return None,
        });
    }
    Some(match name {
        "laneid" => Special::Laneid,
        "warpid" => Special::Warpid,
        "nwarpid" => Special::Nwarpid,
        "smid" => Special::Smid,
        "nsmid" => Special::Nsmid,
        "gridid" => Special::Gridid,
        "lanemask_eq" => Special::LanemaskEq,
        "lanemask_le" => Special::LanemaskLe,
        "lanemask_lt" => Special::LanemaskLt,
        "lanemask_ge" => Special::LanemaskGe,
        "lanemask_gt" => Special::LanemaskGt,
        "clock" => Special::Clock,
        "clock_hi" => Special::ClockHi,
        "clock64" => Special::Clock64,
        "globaltimer" => Special::Globaltimer,
        "globaltimer_lo" => Special::GlobaltimerLo,
        "globaltimer_hi" => Special::GlobaltimerHi,
        "dynamic_smem_size" => Special::DynamicSmemSize,
        "total_smem_size" => Special::TotalSmemSize,
        "cluster_ctarank" => Special::ClusterCtarank,
        "cluster_nctarank" => Special::ClusterNctarank,
        _ => {
            let number = name.strip_prefix("envreg")?.parse::<u8>().ok()?;
            return (number <= ENVREG_MAX).then_some(Special::Envreg(number));
        }
    })
}
