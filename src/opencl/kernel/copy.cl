/* Copies: of rows, and for benchmarks of every byte once. A work-item alone has packs that lie end to end, a group's have them in turns. */
#include "common.cl"
#include "copy.h"

#if GROUP == 1
#define FOR_PACKS(i, packs)                                                                                        \
  const long each = ((packs) + get_global_size(0) - 1) / get_global_size(0), first = each * (long)get_global_id(0); \
  for (long i = first; i < first + each && i < (packs); ++i)
#else
#define FOR_PACKS(i, packs) for (long i = (long)get_global_id(0); i < (packs); i += (long)get_global_size(0))
#endif

__kernel void copy(TENSOR(to), TENSOR(from), const copy_numbers k) {
  __global uint4 *y = (__global uint4 *)memory_of(to);
  __global const uint4 *x = (__global const uint4 *)memory_of(from);
  FOR_PACKS(i, k.packs) y[i] = x[i];
}

/* The store keeps the compiler from dropping the reads; hardly any memory has what it waits for. */
__kernel void copy_read(TENSOR(sink), TENSOR(from), const copy_numbers k) {
  __global const uint4 *x = (__global const uint4 *)memory_of(from);
  uint4 all = ~0u;
  FOR_PACKS(i, k.packs) all &= x[i];
  if ((all.x & all.y & all.z & all.w) == 0xfffffffeu) *(__global uint *)memory_of(sink) = all.x;
}

__kernel void copy_rows(TENSOR(to), TENSOR(from), const copy_rows_numbers k) {
  for (long r = row_first(); r < k.rows; r += row_step()) {
    __global ushort *out = (__global ushort *)memory_of(to) + r * k.to_pitch;
    __global const ushort *in = (__global const ushort *)memory_of(from) + r * k.from_pitch;
    FOR_ROW(i, n, k.words) {
      if (n >= LANES)
        store_floats(load_floats(0, in + i), 0, out + i);
      else
        for (int j = 0; j < n; ++j) out[i + j] = in[i + j];
    }
  }
}
