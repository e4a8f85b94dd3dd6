/* Random numbers as a pure function of (seed, stream, counter): no state to save, so that a resumed run, a rank of many
 * and a whole run draw the same. The mixer is splitmix64 (Steele, Lea, Flood 2014). */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <math.h>
#include <stdint.h>

enum { TRAIN_STREAM_BATCH = 1, TRAIN_STREAM_SAMPLE = 2, TRAIN_STREAM_WEIGHTS = 16 /* + the tensor's index */ };

static inline uint64_t train_mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static inline uint64_t train_random(uint64_t seed, uint64_t stream, uint64_t counter) {
  return train_mix(train_mix(train_mix(seed) ^ stream) ^ counter);
}

/* In (0, 1). */
static inline double train_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return ((double)(train_random(seed, stream, counter) >> 11) + 0.5) * 0x1p-53;
}

/* Normal with mean 0 and deviation 1, by Box and Muller. */
static inline double train_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const double radius = sqrt(-2.0 * log(train_uniform(seed, stream, 2 * counter)));
  return radius * cos(6.283185307179586 * train_uniform(seed, stream, 2 * counter + 1));
}

#endif
