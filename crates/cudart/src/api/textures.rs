//! Texture and surface objects.
//!
//! Texture references, which are variables of the program, ended with version 12: no program of the versions served here has them.

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
    /// A texture of an array or of memory.
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
        let view = view.as_ref().map_or(std::ptr::null(), |view| std::ptr::from_ref(view).cast::<c_void>());
        let mut created = 0;
        current.driver.cuTexObjectCreate(&raw mut created, &raw const of, &raw const how, view)?;
        keep(created, whole);
        object.write(created);
        Ok(())
    }
    /// Ends a texture.
    fn cudaDestroyTextureObject(object: u64) {
        let current = current()?;
        if object == 0 {
            return Ok(());
        }
        forget(object);
        current.driver.cuTexObjectDestroy(object)
    }
    /// What a texture is of.
    fn cudaGetTextureObjectResourceDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_resource(desc, made(object)?.resource);
        Ok(())
    }
    /// How a texture is read.
    fn cudaGetTextureObjectTextureDesc(desc: *mut TextureDesc, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        desc.write_unaligned(made(object)?.texture);
        Ok(())
    }
    /// What of its resource a texture is of.
    fn cudaGetTextureObjectResourceViewDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_view(desc, made(object)?.view.ok_or(RtError::INVALID_VALUE)?);
        Ok(())
    }
    /// A surface of an array.
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
    /// Ends a surface.
    fn cudaDestroySurfaceObject(object: u64) {
        let current = current()?;
        if object == 0 {
            return Ok(());
        }
        forget_surface(object);
        current.driver.cuSurfObjectDestroy(object)
    }
    /// What a surface is of.
    fn cudaGetSurfaceObjectResourceDesc(desc: *mut c_void, object: u64) {
        if desc.is_null() {
            return Err(RtError::INVALID_VALUE);
        }
        store_resource(desc, surface(object)?);
        Ok(())
    }
}
