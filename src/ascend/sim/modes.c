/* What a machine may be made to do differently: the order of its pipes, and the rounding of what only a device knows. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ascend/sim/core.h"

uint64_t tigon_sim_mixed(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static uint64_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* `ulps` neighbours up or down, neither past 0 nor to infinity. A finite float's bits count from 0 outwards. */
static float neighbour(float value, int64_t ulps) {
  const uint64_t all = bits_of(value), sign = all & 0x80000000u;
  const int64_t largest = 0x7f7fffff, at = (int64_t)(all & 0x7fffffffu) + ulps;
  const uint32_t bits = (uint32_t)(sign | (uint64_t)(at < 0 ? 0 : at > largest ? largest : at));
  memcpy(&value, &bits, sizeof value);
  return value;
}

float tigon_sim_rounded(const tigon_sim_modes *modes, sim_op op, float a, float b, float result) {
  if (modes->noise > 0 && isfinite(result) && result != 0) {
    const uint64_t operands = bits_of(a) << 32 | bits_of(b);
    const uint64_t chance = tigon_sim_mixed(operands ^ tigon_sim_mixed(modes->noise_seed * SIM_OPS + (uint64_t)op));
    result = neighbour(result, (int64_t)(chance % (uint64_t)(2 * modes->noise + 1)) - modes->noise);
  }
  return modes->flush && fabsf(result) < 0x1p-126f ? copysignf(0, result) : result;
}

/* ---- from the environment ---- */

static _Thread_local char sentence[160];

static bool refuse(const char **reason, const char *name, const char *value, const char *must) {
  snprintf(sentence, sizeof sentence, "%s is \"%.40s\", must be %s", name, value, must);
  *reason = sentence;
  return false;
}

/* A whole number from 0 to `most` that `text` is to the end. */
static bool number(const char *text, uint64_t most, uint64_t *value) {
  char *end;
  errno = 0;
  if (*text < '0' || *text > '9') return false;
  *value = strtoull(text, &end, 10);
  return *end == 0 && errno == 0 && *value <= most;
}

static bool read_order(tigon_sim_modes *modes, const char *value) {
  static const char *const names[] = {"eager", "v", "mte2", "mte3", "random"};
  if (strncasecmp(value, "random:", 7) == 0) {
    modes->order = SIM_RANDOM;
    return number(value + 7, UINT64_MAX, &modes->order_seed);
  }
  for (int o = SIM_EAGER; o <= SIM_RANDOM; ++o)
    if (strcasecmp(value, names[o]) == 0) return modes->order = (tigon_sim_order)o, true;
  return false;
}

/* "ULPS" or "ULPS:SEED" */
static bool read_noise(tigon_sim_modes *modes, const char *value) {
  enum { MOST = 1024 };
  char ulps[8] = "";
  uint64_t noise;
  const size_t length = strcspn(value, ":");
  if (length >= sizeof ulps) return false;
  memcpy(ulps, value, length);
  if (value[length] && !number(value + length + 1, UINT64_MAX, &modes->noise_seed)) return false;
  if (!number(ulps, MOST, &noise)) return false;
  modes->noise = (int)noise;
  return true;
}

bool tigon_sim_modes_read(tigon_sim_modes *modes, const char **reason) {
  const int error = errno;
  const char *order = getenv("TIGON_ASCEND_SIM_ORDER"), *noise = getenv("TIGON_ASCEND_SIM_NOISE"),
             *flush = getenv("TIGON_ASCEND_SIM_FLUSH");
  *modes = (tigon_sim_modes){0};
  bool good = true;
  if (order && *order && !read_order(modes, order))
    good = refuse(reason, "TIGON_ASCEND_SIM_ORDER", order, "eager, v, mte2, mte3, random or random:SEED");
  else if (noise && *noise && !read_noise(modes, noise))
    good = refuse(reason, "TIGON_ASCEND_SIM_NOISE", noise, "ULPS or ULPS:SEED, with ULPS from 0 to 1024");
  else if (flush && *flush && strcmp(flush, "0") != 0 && strcmp(flush, "1") != 0)
    good = refuse(reason, "TIGON_ASCEND_SIM_FLUSH", flush, "0 or 1");
  else
    modes->flush = flush && *flush == '1';
  errno = error;
  return good;
}
