/* The device descriptions. Sizes come from the vendor's platform files and public documents; [d] marks a figure that
 * was derived: only predicted times depend on those. */
#include <string.h>
#include <strings.h>

#include "ascend/plan/plan.h"

/* Ascend 910B: a Unified Buffer of 196608 bytes, less 256, less the 8 KiB that some toolchains reserve.
 * Ascend 950: 253952 bytes, less the same. */
#define ASCEND_910B_BYTES (196608 - 256 - 8192)
#define ASCEND_950_BYTES (253952 - 256 - 8192)

/* Measured on a 910B1 (GB/s a core by active cores); the other parts have it cut off at their cores [d]. */
#define ASCEND_BANDWIDTH                                                            \
  {                                                                                 \
    {1, 101}, {8, 69}, {16, 73}, {20, 69}, {24, 65}, {32, 53}, {40, 42}, { 48, 34 } \
  }
/* 950: as the 910B1 up to 40 cores, the sum level from there (no public figure) [d]. */
#define ASCEND_950_BANDWIDTH                                                          \
  {                                                                                   \
    {1, 101}, {8, 69}, {16, 73}, {24, 65}, {32, 53}, {40, 42}, {48, 35}, { 64, 26.2 } \
  }

/* One repeat is 64 f32 lanes and takes 2.1 cycles in an addition (cost model fitted on a 910B3). */
#define ASCEND_GOPS(mhz) ((mhz)*1e-3 * 64 / 2.1)

/* What all Ascend parts share. launch, start and tile costs are of the size that public timings show [d]. */
#define ASCEND                                                                                                        \
  .grid_limit = 65535, .onchip_alignment = 32, .memory_alignment = 512, .transfer_bytes = 16384, .vector_bytes = 256, \
  .buffers = 2, .cached_gbps = 137, .launch_us = 5.0, .start_us_per_core = 0.05, .tile_us = 0.3, .listed = 3072

#define PART(part, bytes, count, points, mhz) \
  { .name = part, .onchip_bytes = bytes, .cores = count, ASCEND, .bandwidth = points, .vector_gops = ASCEND_GOPS(mhz) }

/* ascend910_93 is a die of an A3, whose parts have 40 to 48 vector cores at 1500 to 1850 MHz. ascend950 has four parts with 64 to
 * 72 at 1650 to 1800 MHz. Each has the least of both. */
static const tigon_device_desc table[] = {
    PART("ascend910b1", ASCEND_910B_BYTES, 48, ASCEND_BANDWIDTH, 1850),
    PART("ascend910b2", ASCEND_910B_BYTES, 48, ASCEND_BANDWIDTH, 1800),
    PART("ascend910b3", ASCEND_910B_BYTES, 40, ASCEND_BANDWIDTH, 1800),
    PART("ascend910b4", ASCEND_910B_BYTES, 40, ASCEND_BANDWIDTH, 1500),
    PART("ascend910_93", ASCEND_910B_BYTES, 40, ASCEND_BANDWIDTH, 1500),
    PART("ascend950", ASCEND_950_BYTES, 64, ASCEND_950_BANDWIDTH, 1650),
};

#define TABLE_ROWS ((int)(sizeof table / sizeof *table))

const tigon_device_desc *tigon_device_desc_at(int index) {
  return index >= 0 && index < TABLE_ROWS ? &table[index] : NULL;
}

/* "Ascend910B4", "ascend-sim:910B4" -> "910B4". */
static const char *without_vendor(const char *name) {
  static const char *const prefixes[] = {"ascend-sim:", "ascend"};
  for (int i = 0; i < 2; i++) {
    const size_t length = strlen(prefixes[i]);
    if (strncasecmp(name, prefixes[i], length) == 0) return name + length;
  }
  return name;
}

const tigon_device_desc *tigon_device_desc_find(const char *name) {
  if (!name) return NULL;
  for (int i = 0; i < TABLE_ROWS; i++) {
    if (strcasecmp(without_vendor(table[i].name), without_vendor(name)) == 0) return &table[i];
  }
  return NULL;
}
