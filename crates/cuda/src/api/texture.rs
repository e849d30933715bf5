//! Texture and surface objects.

use std::ffi::c_void;

use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::texture::Kind;
use crate::core::{platform, texture};
use crate::edge::{cu_entry, load, require, store};

cu_entry! {
    /// `cuTexObjectCreate`: without a view, which only other formats and mipmaps need.
    fn cuTexObjectCreate(
        result: *mut CUtexObject,
        resource: *const CUDA_RESOURCE_DESC,
        description: *const CUDA_TEXTURE_DESC,
        view: *const c_void,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        require(view.is_null(), CUDA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: the program's descriptions.
        let (resource, description) = unsafe { (load(resource)?, load(description)?) };
        let object = texture::create(&context, &resource, &description)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, object) };
        Ok(())
    }
    /// `cuTexObjectDestroy`.
    fn cuTexObjectDestroy(object: CUtexObject) {
        platform::check_process()?;
        texture::destroy(object, Kind::Texture)
    }
    /// `cuTexObjectGetResourceDesc`.
    fn cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUtexObject) {
        require(!resource.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        // SAFETY: a place for the description.
        unsafe { store(resource, texture::made_of(object, Kind::Texture)?.0) };
        Ok(())
    }
    /// `cuTexObjectGetTextureDesc`.
    fn cuTexObjectGetTextureDesc(description: *mut CUDA_TEXTURE_DESC, object: CUtexObject) {
        require(!description.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        // SAFETY: a place for the description.
        unsafe { store(description, texture::made_of(object, Kind::Texture)?.1) };
        Ok(())
    }
    /// `cuSurfObjectCreate`.
    fn cuSurfObjectCreate(result: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        // SAFETY: the program's description.
        let object = texture::create_surface(&context, &unsafe { load(resource) }?)?;
        // SAFETY: a place for the handle.
        unsafe { store(result, object) };
        Ok(())
    }
    /// `cuSurfObjectDestroy`.
    fn cuSurfObjectDestroy(object: CUsurfObject) {
        platform::check_process()?;
        texture::destroy(object, Kind::Surface)
    }
    /// `cuSurfObjectGetResourceDesc`.
    fn cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUsurfObject) {
        require(!resource.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        platform::check_process()?;
        // SAFETY: a place for the description.
        unsafe { store(resource, texture::made_of(object, Kind::Surface)?.0) };
        Ok(())
    }
}
