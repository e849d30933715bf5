use penstock_cuda_sys::driver::*;

use crate::core::context::Context;
use crate::core::texture;
use crate::core::texture::TextureKind;
use crate::edge::{check_process, cu_entry, load, require, store};

cu_entry! {
    fn cuTexObjectCreate(
        result: *mut CUtexObject,
        resource: *const CUDA_RESOURCE_DESC,
        description: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC,
    ) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        // SAFETY: the program promises that `resource` and `description` are null or readable.
        let (resource, description) = unsafe { (load(resource)?, load(description)?) };
        // SAFETY: the program promises that `view` is null or readable.
        let view = (!view.is_null()).then(|| unsafe { load(view) }).transpose()?;
        let object = texture::create(&context, &resource, &description, view)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, object) };
        Ok(())
    }
    fn cuTexObjectDestroy(object: CUtexObject) {
        check_process()?;
        texture::destroy(object, TextureKind::Texture)
    }
    fn cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUtexObject) {
        require(!resource.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        // SAFETY: the program promises that `resource` is null or writable.
        unsafe { store(resource, texture::descriptions_of(object, TextureKind::Texture)?.0) };
        Ok(())
    }
    /// Fails with `CUDA_ERROR_INVALID_VALUE` if the object was made without a view, as the runtime
    /// library's function does.
    fn cuTexObjectGetResourceViewDesc(view: *mut CUDA_RESOURCE_VIEW_DESC, object: CUtexObject) {
        require(!view.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        let known = texture::view_of(object)?.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the program promises that `view` is null or writable.
        unsafe { store(view, known) };
        Ok(())
    }
    fn cuTexObjectGetTextureDesc(description: *mut CUDA_TEXTURE_DESC, object: CUtexObject) {
        require(!description.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        // SAFETY: the program promises that `description` is null or writable.
        unsafe { store(description, texture::descriptions_of(object, TextureKind::Texture)?.1) };
        Ok(())
    }
    fn cuSurfObjectCreate(result: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) {
        require(!result.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::current()?;
        // SAFETY: the program promises that `resource` is null or readable.
        let object = texture::create_surface(&context, &unsafe { load(resource) }?)?;
        // SAFETY: the program promises that `result` is null or writable.
        unsafe { store(result, object) };
        Ok(())
    }
    fn cuSurfObjectDestroy(object: CUsurfObject) {
        check_process()?;
        texture::destroy(object, TextureKind::Surface)
    }
    fn cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, object: CUsurfObject) {
        require(!resource.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        check_process()?;
        // SAFETY: the program promises that `resource` is null or writable.
        unsafe { store(resource, texture::descriptions_of(object, TextureKind::Surface)?.0) };
        Ok(())
    }
}
