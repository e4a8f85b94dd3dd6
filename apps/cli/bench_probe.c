/* The ceilings: how fast this machine copies and reads, with the same threads and in the same minutes as the operators. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench.h"

enum { LARGEST = BENCH_PROBE_BYTES / 2 }; /* the largest buffer */

double bench_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#if defined(__x86_64__)
/* 64 bytes are a whole line of the write-combining buffer. */
static void copy_streaming(char *to, const char *from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    const __m128i *source = (const __m128i *)(const void *)(from + i);
    __m128i *target = (__m128i *)(void *)(to + i);
    const __m128i a = _mm_load_si128(source), b = _mm_load_si128(source + 1);
    const __m128i c = _mm_load_si128(source + 2), d = _mm_load_si128(source + 3);
    _mm_prefetch(from + i + 1024, _MM_HINT_T0);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
}

/* Four chains, so that no sum waits for itself; `bytes` is a multiple of 64. */
static uint64_t read_all(const char *from, size_t bytes) {
  __m128i sums[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
  for (size_t i = 0; i < bytes; i += 64) {
    const __m128i *source = (const __m128i *)(const void *)(from + i);
    _mm_prefetch(from + i + 2048, _MM_HINT_T0);
    for (int k = 0; k < 4; ++k) sums[k] = _mm_add_epi64(sums[k], _mm_load_si128(source + k));
  }
  const __m128i sum = _mm_add_epi64(_mm_add_epi64(sums[0], sums[1]), _mm_add_epi64(sums[2], sums[3]));
  return (uint64_t)_mm_cvtsi128_si64(sum) + (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum));
}
#else
static void copy_streaming(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }

static uint64_t read_all(const char *from, size_t bytes) {
  uint64_t sums[8] = {0};
  for (size_t i = 0; i < bytes; i += sizeof sums)
    for (int k = 0; k < 8; ++k) {
      uint64_t word;
      memcpy(&word, from + i + 8 * k, sizeof word);
      sums[k] += word;
    }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}
#endif

typedef enum probe_kind { PROBE_COPY, PROBE_PIECES, PROBE_STREAM, PROBE_READ, PROBE_FILL } probe_kind;

/* In pieces that are below what libc has string instructions for, whose start costs more than a cached copy. */
static void copy_pieces(char *to, const char *from, size_t bytes) {
  enum { PIECE = 1 << 10 };
  for (size_t i = 0; i < bytes; i += PIECE) memcpy(to + i, from + i, bytes - i < PIECE ? bytes - i : PIECE);
}

/* GB/s of the calls that fit in `seconds`, one at least; each is called as an operator is: the threads start, and all are
 * done when it ends. Every thread has its own contiguous part, and every kind moves 2 * bytes a call. */
static double sample(const bench_probe *probe, probe_kind kind, double seconds) {
  uint64_t sum = 0;
  const int64_t lines = (int64_t)(probe->bytes / 64), threads = probe->threads;
  const double start = bench_now();
  double taken = 0, calls = 0;
  for (; calls == 0 || taken < seconds; taken = bench_now() - start, ++calls) {
#pragma omp parallel for num_threads(probe->threads) schedule(static, 1) reduction(+ : sum)
    for (int64_t t = 0; t < threads; ++t) {
      const size_t begin = (size_t)(lines * t / threads) * 64, bytes = (size_t)(lines * (t + 1) / threads) * 64 - begin;
      char *from = probe->from + begin, *to = probe->to + begin;
      if (kind == PROBE_COPY) memcpy(to, from, bytes);
      if (kind == PROBE_PIECES) copy_pieces(to, from, bytes);
      if (kind == PROBE_STREAM) copy_streaming(to, from, bytes);
      if (kind == PROBE_READ) sum += read_all(from, bytes) + read_all(to, bytes);
      if (kind == PROBE_FILL) memset(from, 1, bytes), memset(to, 1, bytes);
    }
  }
  static volatile uint64_t sink;
  sink = sum; /* the reads must not be optimised away */
  (void)sink;
  return 2.0 * (double)probe->bytes * calls / taken * 1e-9;
}

bool bench_probe_open(bench_probe *probe, double bytes, int threads, bool hot) {
  const double half = bytes / 2 < LARGEST ? bytes / 2 : LARGEST;
  probe->threads = threads;
  probe->bytes = ((size_t)half + 63) & ~(size_t)63;
  if (probe->bytes < 4096) probe->bytes = 4096;
  probe->from = aligned_alloc(64, probe->bytes);
  probe->to = aligned_alloc(64, probe->bytes);
  if (!probe->from || !probe->to) {
    bench_probe_close(probe);
    return false;
  }
  sample(probe, PROBE_FILL, 0); /* touch the pages before anything is timed */
  double best = 0;
  for (int i = 0; i < 3; ++i)
    for (int kind = PROBE_COPY; kind <= (hot ? PROBE_PIECES : PROBE_STREAM); ++kind) {
      const double gbps = sample(probe, (probe_kind)kind, 1e-3);
      if (gbps > best) best = gbps, probe->kind = kind;
    }
  return true;
}

void bench_probe_close(bench_probe *probe) {
  free(probe->from);
  free(probe->to);
  probe->from = probe->to = NULL;
}

double bench_probe_copy(const bench_probe *probe, double seconds) {
  return sample(probe, (probe_kind)probe->kind, seconds);
}

double bench_probe_read(const bench_probe *probe, double seconds) { return sample(probe, PROBE_READ, seconds); }
