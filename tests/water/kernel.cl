/* For listing1.c. Each device has a part of the data, which begins at `offset`. */
kernel void fun(global uchar *data, const ulong offset) {
    const ulong i = get_global_id(0);
    data[i] = (uchar)(data[i] * 3 + (offset + i) % 251);
}
