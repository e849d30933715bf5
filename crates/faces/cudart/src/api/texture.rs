//! Texture and surface objects.
//!
//! Texture references, which are variables of the program, are not served: version 12 removed them.

use std::ffi::c_void;

use penstock_cuda_sys::runtime::{ResourceDesc, ResourceViewDesc, TextureDesc, resource_type};
use penstock_cuda_sys::runtime_codes as code;

use crate::core::context::current;
use crate::core::texture::{
    Made, View, forget, forget_surface, keep, keep_surface, made, resource, store_resource,
    store_view, surface, texture,
};
use crate::edge::{RtError, entry};

entry! {
    /// Creates a texture of an array or of memory.
    fn cudaCreateTextureObject(
        object: *mut u64, resource_desc: *const ResourceDesc, texture_desc: *const TextureDesc,
        view_desc: *const ResourceViewDesc,
    ) {
        let current = current()?;
        if object.is_null() || resource_desc.is_null() || texture_desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let whole = Made {
            resource: resource_desc.read_unaligned(),
            texture: texture_desc.read_unaligned(),
            view: (!view_desc.is_null()).then(|| view_desc.read_unaligned()),
        };
        let (of, how) = (resource(&whole.resource)?, texture(&whole.texture)?);
        let view = whole.view.map(|view| View { view, ..View::default() });
        let view = view.as_ref().map_or(std::ptr::null(), |view| std::ptr::from_ref(view).cast());
        let mut created = 0;
        current.driver.cuTexObjectCreate(&raw mut created, &raw const of, &raw const how, view)?;
        keep(created, whole);
        object.write(created);
        Ok(())
    }
    fn cudaDestroyTextureObject(object: u64) {
        let current = current()?;
        if object == 0 {
            return Ok(());
        }
        forget(object);
        current.driver.cuTexObjectDestroy(object)
    }
    /// Returns the description of the memory or array that a texture reads.
    fn cudaGetTextureObjectResourceDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_resource(desc, made(object)?.resource);
        Ok(())
    }
    /// Returns how a texture is read.
    fn cudaGetTextureObjectTextureDesc(desc: *mut TextureDesc, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        desc.write_unaligned(made(object)?.texture);
        Ok(())
    }
    /// Returns the description of a texture's view of its resource.
    fn cudaGetTextureObjectResourceViewDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_view(desc, made(object)?.view.ok_or(RtError::INVALID_VALUE)?);
        Ok(())
    }
    /// Creates a surface of an array.
    fn cudaCreateSurfaceObject(object: *mut u64, desc: *const ResourceDesc) {
        let current = current()?;
        if object.is_null() || desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        let desc = desc.read_unaligned();
        if desc.kind != resource_type::ARRAY {
            return Err(RtError(code::INVALID_VALUE));
        }
        let of = resource(&desc)?;
        let mut created = 0;
        current.driver.cuSurfObjectCreate(&raw mut created, &raw const of)?;
        keep_surface(created, desc);
        object.write(created);
        Ok(())
    }
    fn cudaDestroySurfaceObject(object: u64) {
        let current = current()?;
        if object == 0 {
            return Ok(());
        }
        forget_surface(object);
        current.driver.cuSurfObjectDestroy(object)
    }
    /// Returns the description of a surface's array.
    fn cudaGetSurfaceObjectResourceDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_resource(desc, surface(object)?);
        Ok(())
    }
}
