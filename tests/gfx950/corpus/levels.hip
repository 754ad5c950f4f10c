// One kernel of everything that optimisation changes: recursion, calls with a stack, arrays indexed at run time, switches,
// 64-bit division, doubles. At -O0 it lives in scratch memory and calls; at -O3 in registers.

__device__ __attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

struct Row {
  float x[40];
};

__device__ __attribute__((noinline)) float total(Row row, int n) {
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += row.x[k];
  return sum;
}

extern "C" __global__ void levels(const float* a, float* sums, int* numbers, double* thirds, long long* remainders, int n) {
  __shared__ float tile[256];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  tile[t] = a[i];
  __syncthreads();
  Row row;
  for (int k = 0; k < 40; ++k) row.x[k] = tile[(t + k) % 256] * (k & 1 ? -1.0f : 2.0f);
  float sum = total(row, n);
  switch (t % 5) {
    case 0: sum += 1; break;
    case 1: sum *= 2; break;
    case 3: sum = -sum; break;
    default: break;
  }
  sums[i] = sum;
  numbers[i] = fibonacci(t % 9);
  thirds[i] = a[i] / 3.0 + t;
  remainders[i] = i * 123456789123LL % (t + 7);
}
