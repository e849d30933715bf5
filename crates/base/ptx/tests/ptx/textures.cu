// Texture and surface objects.
extern "C" __global__ void textures(float *out, cudaTextureObject_t t, cudaSurfaceObject_t s,
                                    int n) {
    int i = threadIdx.x;
    float x = (float)i + 0.5f;
    out[i] = tex2D<float>(t, x, x) + tex1Dfetch<float>(t, i) + tex3D<float>(t, x, x, x) +
             tex1D<float>(t, x) + tex2DLod<float>(t, x, x, 1.0f);
    float4 v = tex2D<float4>(t, x, x);
    uchar4 b = tex2D<uchar4>(t, x, x);
    int4 w = tex2D<int4>(t, x, x);
    out[i + n] = v.x + v.w + (float)b.y + (float)w.z + tex2DLayered<float>(t, x, x, i);
    float r;
    surf2Dread(&r, s, i * 4, i);
    surf2Dwrite(r + 1.0f, s, i * 4, i + 1);
}
