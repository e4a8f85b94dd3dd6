/* What the studies of this folder measure with. */
#include <algorithm>
#include <vector>

/* Microseconds of launch(i), the median of nine times ten calls between two events. */
template <class F> static double median_us(F launch) {
  cudaEvent_t a, b;
  cudaEventCreate(&a), cudaEventCreate(&b);
  std::vector<float> t;
  for (int i = 0; i < 3; ++i) launch(i);
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(a);
    for (int k = 0; k < 10; ++k) launch(k);
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float ms;
    cudaEventElapsedTime(&ms, a, b);
    t.push_back(ms * 100);
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}
