//! Names under which a device is known outside the pool, and access to the numbers and texts of its
//! description.

use std::ops::Range;
use std::sync::Arc;

use penstock_cl_sys::*;

use crate::pool::Device;

/// PCI domain of devices that are on no PCI bus. Firmware does not assign domains this high.
const MADE_DOMAIN: u32 = 0x8000;

/// Returns the devices that CUDA programs can use. Of a GPU that its node shows through both OpenCL
/// and CUDA's driver, only the latter remains.
pub fn for_cuda(devices: Vec<Arc<Device>>) -> Vec<Arc<Device>> {
    let identity =
        |device: &Device| Some((device.node(), device.info(CL_DEVICE_UUID_KHR)?.to_vec()));
    let native: Vec<_> =
        devices.iter().filter(|it| it.is_cuda()).filter_map(|it| identity(it)).collect();
    let is_double = |device: &Device| {
        !device.is_cuda() && identity(device).is_some_and(|identity| native.contains(&identity))
    };
    devices.into_iter().filter(|device| device.is_usable_for_cuda() && !is_double(device)).collect()
}

impl Device {
    /// Returns a number from the device's description, or 0 if the query has no answer.
    pub fn number(&self, name: u32) -> u64 {
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(self.info(name).unwrap_or_default()) {
            *to = *from;
        }
        // All hosts of a pool have the same byte order: the hello refuses others.
        u64::from_le_bytes(wide)
    }

    /// Returns a text from the device's description, without padding.
    pub fn text(&self, name: u32) -> String {
        let bytes = self.info(name).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
    }

    /// Returns whether CUDA's device code can run on the device. It requires 64-bit addresses and
    /// little-endian byte order, and CUDA's driver or a compiler: "A custom device does not support
    /// programs written in OpenCL C".
    pub fn is_usable_for_cuda(&self) -> bool {
        let is_custom = self.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CUSTOM != 0;
        let is_wide = self.number(CL_DEVICE_ADDRESS_BITS) == 64;
        is_wide && self.number(CL_DEVICE_ENDIAN_LITTLE) != 0 && (self.is_cuda() || !is_custom)
    }

    /// Returns an id that stays the same from run to run: that of the driver, or one derived from
    /// the device's place.
    pub fn uuid(&self) -> [u8; 16] {
        if let Some(uuid) =
            self.info(CL_DEVICE_UUID_KHR).and_then(|bytes| bytes.first_chunk::<16>())
        {
            return *uuid;
        }
        made_uuid(&format!("{} {} {}", self.host(), self.address(), self.index()))
    }

    /// Returns the id as NVIDIA's tools print it.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |range: Range<usize>| hex.get(range).unwrap_or_default();
        format!(
            "GPU-{}-{}-{}-{}-{}",
            part(0..8),
            part(8..12),
            part(12..16),
            part(16..20),
            part(20..32)
        )
    }

    /// Returns PCI domain, bus and device. A device on no bus gets a made-up place, because
    /// programs tell devices apart by it.
    pub fn pci(&self) -> [u32; 3] {
        let words = self.info(CL_DEVICE_PCI_BUS_INFO_KHR).map(|bytes| bytes.as_chunks::<4>().0);
        let known = words
            .and_then(|words| words.first_chunk::<3>())
            .map(|words| words.map(u32::from_ne_bytes));
        let bus = u32::try_from(self.node()).unwrap_or(u32::MAX) & 0xff;
        known.unwrap_or([MADE_DOMAIN, bus, self.index() & 0x1f])
    }
}

/// Hashes `place` with FNV-1a, with a different basis for each half.
fn made_uuid(place: &str) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (seed, half) in (0_u64..).zip(uuid.as_chunks_mut::<8>().0) {
        let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        *half = hash.to_be_bytes();
    }
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_with_the_place_and_stay() {
        assert_eq!(made_uuid("gpu01 tcp:gpu01:7367 0"), made_uuid("gpu01 tcp:gpu01:7367 0"));
        assert_ne!(made_uuid("gpu01 tcp:gpu01:7367 0"), made_uuid("gpu01 tcp:gpu01:7367 1"));
        let uuid = made_uuid("");
        assert_ne!(uuid[..8], uuid[8..]);
    }
}
