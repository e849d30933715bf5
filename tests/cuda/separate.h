// What the files of a program share whose device code is compiled separately (nvcc -rdc=true).
#pragma once

// Defined in separate_two.cu.
extern __device__ int counter;
extern __constant__ float weights[4];
extern __device__ int (*chosen)(int);
__device__ int in_two(int x);

// Defined in separate_three.cu.
__device__ int in_three(int x);
__device__ int prints_in_three(int x);

struct Shape {
    int size;
    __device__ explicit Shape(int size) : size(size) {}
    __device__ virtual int area() const;
    __device__ virtual ~Shape();
};
struct Square : Shape {
    __device__ explicit Square(int size) : Shape(size) {}
    __device__ int area() const override;
};

// Every file that uses these has a copy of its own. Together they are one.
template <typename T> __device__ __noinline__ T tripled(T x) { return x * 3; }
inline __device__ int &of_header() {
    static __device__ int value = 5;
    return value;
}
__device__ __noinline__ inline int sum_to(int n) { return n == 0 ? 0 : n + sum_to(n - 1); }

// Host functions that launch kernels of the other files.
void run_two(int *out);
void run_three(int *out);
int counter_in_three();
