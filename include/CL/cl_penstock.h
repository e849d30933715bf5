/* What Penstock adds to OpenCL's information queries. Copyright 2026 the Penstock authors. SPDX-License-Identifier: Apache-2.0
 *
 * A program needs this header only to ask where a device is. Without Penstock the queries fail with CL_INVALID_VALUE, as
 * any unknown query does, so a program may ask any platform.
 */
#ifndef CL_PENSTOCK_H
#define CL_PENSTOCK_H

#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* clGetPlatformInfo: the host names of the platform's nodes, as text, each once, with spaces between. With
 * PENSTOCK_PLATFORMS=node it is one name. */
#define CL_PLATFORM_HOSTNAME_PENSTOCK 0x50530001

/* clGetDeviceInfo: the host name of the device's node, as text. */
#define CL_DEVICE_HOSTNAME_PENSTOCK 0x50530002

/* The names that clOpenCL gave them. */
#ifndef CL_PLATFORM_HOSTNAME
#define CL_PLATFORM_HOSTNAME CL_PLATFORM_HOSTNAME_PENSTOCK
#endif
#ifndef CL_DEVICE_HOSTNAME
#define CL_DEVICE_HOSTNAME CL_DEVICE_HOSTNAME_PENSTOCK
#endif

#ifdef __cplusplus
}
#endif

#endif /* CL_PENSTOCK_H */
