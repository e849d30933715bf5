// Surfaces, and textures of layers and cubes: one kernel writes through a surface, and another
// reads the content as a texture; edges, faces and layers.
#include "harness.h"

namespace {

// Returns an array of `extent`, filled with `texels`. A size of 0 means that the dimension is
// absent.
template <typename T>
cudaArray_t array_of(cudaExtent extent, unsigned flags, const std::vector<T> &texels) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    cudaArray_t array = nullptr;
    if (cudaMalloc3DArray(&array, &format, extent, flags) != cudaSuccess || texels.empty())
        return array;
    cudaMemcpy3DParms copy = {};
    const size_t height = extent.height ? extent.height : 1,
                 depth = extent.depth ? extent.depth : 1;
    copy.srcPtr =
        make_cudaPitchedPtr((void *)texels.data(), extent.width * sizeof(T), extent.width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    return cudaMemcpy3D(&copy) == cudaSuccess ? array : nullptr;
}

cudaResourceDesc resource_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

cudaSurfaceObject_t surface_of(cudaArray_t array) {
    const cudaResourceDesc resource = resource_of(array);
    cudaSurfaceObject_t surface = 0;
    return cudaCreateSurfaceObject(&surface, &resource) == cudaSuccess ? surface : 0;
}

cudaTextureObject_t texture_of(cudaArray_t array,
                               cudaTextureFilterMode filter = cudaFilterModePoint) {
    const cudaResourceDesc resource = resource_of(array);
    cudaTextureDesc how = {};
    for (cudaTextureAddressMode &mode : how.addressMode) mode = cudaAddressModeClamp;
    how.filterMode = filter;
    cudaTextureObject_t texture = 0;
    return cudaCreateTextureObject(&texture, &resource, &how, nullptr) == cudaSuccess ? texture : 0;
}

// Runs a kernel of one block that fills `count` values, and returns the values.
template <typename T, typename... Types, typename... Given>
std::vector<T> filled(int count, void (*kernel)(T *, Types...), Given... given) {
    std::vector<T> values(count);
    T *out = nullptr;
    if (cudaMalloc(&out, count * sizeof(T)) != cudaSuccess) return values;
    kernel<<<1, count>>>(out, given...);
    if (cudaMemcpy(values.data(), out, count * sizeof(T), cudaMemcpyDeviceToHost) != cudaSuccess)
        values.assign(count, T());
    cudaFree(out);
    return values;
}

constexpr int width = 6, height = 5;

__global__ void write_flat(cudaSurfaceObject_t surface) {
    const int x = threadIdx.x, y = threadIdx.y;
    surf2Dwrite(make_uchar4(x, y, x + y, 200), surface, x * (int)sizeof(uchar4), y);
}
__global__ void read_texture(int *out, cudaTextureObject_t texture) {
    const int i = threadIdx.x, x = i % width, y = i / width;
    const uchar4 texel = tex2D<uchar4>(texture, x + 0.5F, y + 0.5F);
    out[i] = texel.x + 100 * texel.y + 10000 * texel.z + 1000000 * texel.w;
}

TEST(what_is_written_through_a_surface_is_what_a_texture_reads) {
    const cudaArray_t array =
        array_of<uchar4>(make_cudaExtent(width, height, 0), cudaArraySurfaceLoadStore, {});
    const cudaSurfaceObject_t surface = surface_of(array);
    const cudaTextureObject_t texture = texture_of(array);
    EXPECT(surface && texture);
    write_flat<<<1, dim3(width, height)>>>(surface);
    const std::vector<int> found = filled(width * height, read_texture, texture);
    for (int i = 0; i < width * height; i++) {
        const int x = i % width, y = i / width;
        EXPECT_EQUAL(found[i], x + 100 * y + 10000 * (x + y) + 200000000);
    }
    cudaResourceDesc made = {};
    REQUIRE(cudaGetSurfaceObjectResourceDesc(&made, surface));
    EXPECT(made.res.array.array == array);
    REQUIRE(cudaDestroySurfaceObject(surface));
    EXPECT_CODE(cudaDestroySurfaceObject(surface), cudaErrorInvalidValue);
    REQUIRE(cudaDestroyTextureObject(texture));
    REQUIRE(cudaFreeArray(array));
}

// Reads around the edges: x from -2 on, in the row `y`.
__global__ void read_around(float *out, cudaSurfaceObject_t surface, int y, bool clamps) {
    const int x = ((int)threadIdx.x - 2) * (int)sizeof(float);
    float value = -1;
    if (clamps)
        surf2Dread(&value, surface, x, y, cudaBoundaryModeClamp);
    else
        surf2Dread(&value, surface, x, y, cudaBoundaryModeZero);
    out[threadIdx.x] = value;
}
__global__ void write_around(cudaSurfaceObject_t surface, float value) {
    surf2Dwrite(value, surface, ((int)threadIdx.x - 2) * (int)sizeof(float), -1,
                cudaBoundaryModeZero);
}

TEST(beyond_the_edges_are_zeros_or_the_edge_as_the_program_says) {
    std::vector<float> texels(width * height);
    for (int i = 0; i < width * height; i++) texels[i] = 10.0F + i;
    const cudaArray_t array =
        array_of(make_cudaExtent(width, height, 0), cudaArraySurfaceLoadStore, texels);
    const cudaSurfaceObject_t surface = surface_of(array);
    EXPECT(surface != 0);
    write_around<<<1, width + 4>>>(surface, 999.0F);
    for (int y = -1; y <= height; y++) {
        const int row = y < 0 ? 0 : y < height ? y : height - 1;
        const std::vector<float> clamped = filled(width + 4, read_around, surface, y, true),
                                 zeroed = filled(width + 4, read_around, surface, y, false);
        for (int i = 0; i < width + 4; i++) {
            const int x = i - 2, column = x < 0 ? 0 : x < width ? x : width - 1;
            EXPECT_EQUAL(clamped[i], 10.0F + row * width + column);
            EXPECT_EQUAL(zeroed[i], x == column && y == row ? 10.0F + row * width + column : 0.0F);
        }
    }
}

__global__ void write_outside(cudaSurfaceObject_t surface) {
    surf2Dwrite(1.0F, surface, 0, height);
}

FORKED_TEST(a_write_beyond_the_edge_is_a_fault) {
    const cudaArray_t array =
        array_of<float>(make_cudaExtent(width, height, 0), cudaArraySurfaceLoadStore, {});
    const cudaSurfaceObject_t surface = surface_of(array);
    EXPECT(surface != 0);
    write_outside<<<1, 1>>>(surface);
    EXPECT_CODE(cudaDeviceSynchronize(), cudaErrorIllegalAddress, cudaErrorLaunchFailure);
}

__global__ void write_deep(cudaSurfaceObject_t slices, cudaSurfaceObject_t layers,
                           cudaSurfaceObject_t line) {
    const int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    surf3Dwrite((short)(x + 10 * y + 100 * z), slices, x * (int)sizeof(short), y, z);
    surf2DLayeredwrite((short)(1000 + x + 10 * y + 100 * z), layers, x * (int)sizeof(short), y, z);
    if (y == 0 && z == 0) surf1Dwrite(make_int2(x, -x), line, x * (int)sizeof(int2));
}
__global__ void read_deep(int *out, cudaTextureObject_t slices, cudaSurfaceObject_t layers,
                          cudaTextureObject_t line) {
    const int i = threadIdx.x, x = i % 4, y = i / 4 % 3, z = i / 12;
    short layer = 0;
    surf2DLayeredread(&layer, layers, x * (int)sizeof(short), y, z);
    out[i] = tex3D<short>(slices, x + 0.5F, y + 0.5F, z + 0.5F) + 10000 * layer +
             tex1D<int2>(line, x + 0.5F).y;
}

TEST(slices_and_layers_have_places_of_their_own) {
    const cudaExtent extent = make_cudaExtent(4, 3, 2);
    const cudaArray_t slices = array_of<short>(extent, cudaArraySurfaceLoadStore, {});
    const cudaArray_t layers =
        array_of<short>(extent, cudaArraySurfaceLoadStore | cudaArrayLayered, {});
    const cudaArray_t line =
        array_of<int2>(make_cudaExtent(4, 0, 0), cudaArraySurfaceLoadStore, {});
    const cudaSurfaceObject_t layer_surface = surface_of(layers);
    write_deep<<<1, dim3(4, 3, 2)>>>(surface_of(slices), layer_surface, surface_of(line));
    const std::vector<int> found =
        filled(24, read_deep, texture_of(slices), layer_surface, texture_of(line));
    for (int i = 0; i < 24; i++) {
        const int x = i % 4, y = i / 4 % 3, z = i / 12, place = x + 10 * y + 100 * z;
        EXPECT_EQUAL(found[i], place + 10000 * (1000 + place) - x);
    }
}

__global__ void read_layers(float *out, cudaTextureObject_t flat, cudaTextureObject_t lines) {
    const int layer = threadIdx.x;
    out[layer] = tex2DLayered<float>(flat, 1.0F, 1.5F, layer) +
                 1000 * tex1DLayered<float>(lines, 1.0F, layer);
}

TEST(textures_of_layers_filter_within_a_layer) {
    std::vector<float> flat(3 * 2 * 4), lines(3 * 4);
    for (int i = 0; i < 24; i++) flat[i] = (float)i;
    for (int i = 0; i < 12; i++) lines[i] = (float)(i * i);
    const cudaTextureObject_t first = texture_of(
        array_of(make_cudaExtent(3, 2, 4), cudaArrayLayered, flat), cudaFilterModeLinear);
    const cudaTextureObject_t second = texture_of(
        array_of(make_cudaExtent(3, 0, 4), cudaArrayLayered, lines), cudaFilterModeLinear);
    EXPECT(first && second);
    const std::vector<float> found = filled(4, read_layers, first, second);
    for (int layer = 0; layer < 4; layer++) {
        // Half way between the first two texels, of the second row and of the line.
        const float a = lines[layer * 3], b = lines[layer * 3 + 1];
        EXPECT_EQUAL(found[layer], 6.0F * layer + 3.5F + 500 * (a + b));
    }
}

__global__ void read_faces(float *out, cudaTextureObject_t cube, cudaTextureObject_t cubes) {
    // Along each axis in both directions; to the right of the middle of the face, and below it.
    const float3 towards[6] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
    const float3 right[6] = {{0, 0, -1}, {0, 0, 1}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {-1, 0, 0}};
    const float3 below[6] = {{0, -1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}, {0, -1, 0}, {0, -1, 0}};
    const int face = threadIdx.x % 6, quarter = threadIdx.x / 6;
    const float u = quarter % 2 ? 0.5F : -0.5F, v = quarter / 2 ? 0.5F : -0.5F;
    const float x = 3 * (towards[face].x + u * right[face].x + v * below[face].x);
    const float y = 3 * (towards[face].y + u * right[face].y + v * below[face].y);
    const float z = 3 * (towards[face].z + u * right[face].z + v * below[face].z);
    out[threadIdx.x] =
        texCubemap<float>(cube, x, y, z) + 100 * texCubemapLayered<float>(cubes, x, y, z, 1);
}

TEST(directions_choose_the_face_of_a_cube_and_the_place_there) {
    // Two texels on each side; a second cube behind the first one.
    std::vector<float> texels(48);
    for (int i = 0; i < 48; i++) texels[i] = (float)i;
    const cudaArray_t cube = array_of(make_cudaExtent(2, 2, 6), cudaArrayCubemap, texels);
    const cudaArray_t cubes =
        array_of(make_cudaExtent(2, 2, 12), cudaArrayCubemap | cudaArrayLayered, texels);
    const std::vector<float> found = filled(24, read_faces, texture_of(cube), texture_of(cubes));
    for (int i = 0; i < 24; i++) {
        const int face = i % 6, quarter = i / 6, texel = face * 4 + quarter;
        EXPECT_EQUAL(found[i], (float)(texel + 100 * (24 + texel)));
    }
}

__global__ void gather(float *out, cudaTextureObject_t texture) {
    const float4 first = tex2Dgather<float4>(texture, 2.2F, 1.9F, 0),
                 second = tex2Dgather<float4>(texture, 2.2F, 1.9F, 1);
    const float values[8] = {first.x,  first.y,  first.z,  first.w,
                             second.x, second.y, second.z, second.w};
    out[threadIdx.x] = values[threadIdx.x];
}

TEST(a_gather_gives_one_channel_of_four_neighbours) {
    std::vector<float2> texels(4 * 3);
    for (int i = 0; i < 12; i++) texels[i] = make_float2((float)i, -(float)i);
    const cudaArray_t array = array_of(make_cudaExtent(4, 3, 0), cudaArrayTextureGather, texels);
    const std::vector<float> found = filled(8, gather, texture_of(array));
    // From the lower left, counter-clockwise.
    const float wanted[4] = {9, 10, 6, 5};
    for (int i = 0; i < 8; i++) EXPECT_EQUAL(found[i], i < 4 ? wanted[i] : -wanted[i - 4]);
}

TEST(arrays_and_surfaces_that_cannot_be_are_refused) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    EXPECT_CODE(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 5, 6), cudaArrayCubemap),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 4, 5), cudaArrayCubemap),
                cudaErrorInvalidValue);
    EXPECT_CODE(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 4, 0), cudaArrayLayered),
                cudaErrorInvalidValue);
    // Created without the flag.
    const cudaArray_t plain = array_of<float>(make_cudaExtent(4, 4, 0), 0, {});
    const cudaResourceDesc resource = resource_of(plain);
    cudaSurfaceObject_t surface = 0;
    EXPECT_CODE(cudaCreateSurfaceObject(&surface, &resource), cudaErrorInvalidValue);
    // A texture is not a surface.
    EXPECT_CODE(cudaDestroySurfaceObject(texture_of(plain)), cudaErrorInvalidValue);
    cudaDeviceProp properties = {};
    REQUIRE(cudaGetDeviceProperties(&properties, 0));
    EXPECT(properties.maxSurface2D[0] >= 65536 && properties.maxTexture2DLayered[2] >= 2048 &&
           properties.maxTextureCubemap >= 16384);
}

} // namespace

int main(int argc, char **argv) { return harness::run_tests(argc, argv); }
