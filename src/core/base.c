#include <string.h>
#include <tigon/base.h>

int tigon_version(void) { return TIGON_VERSION; }

const char *tigon_status_name(tigon_status status) {
  switch (status) {
    case TIGON_OK: return "TIGON_OK";
    case TIGON_ERROR_INVALID: return "TIGON_ERROR_INVALID";
    case TIGON_ERROR_UNSUPPORTED: return "TIGON_ERROR_UNSUPPORTED";
    case TIGON_ERROR_WORKSPACE: return "TIGON_ERROR_WORKSPACE";
    case TIGON_ERROR_ALIAS: return "TIGON_ERROR_ALIAS";
    case TIGON_ERROR_SCRATCH: return "TIGON_ERROR_SCRATCH";
    case TIGON_ERROR_DEVICE: return "TIGON_ERROR_DEVICE";
    case TIGON_ERROR_OUT_OF_MEMORY: return "TIGON_ERROR_OUT_OF_MEMORY";
  }
  return "unknown status";
}

static const struct {
  const char *name;
  size_t bytes;
} dtypes[] = {
    [TIGON_DTYPE_NONE] = {"none", 0}, [TIGON_F32] = {"f32", 4}, [TIGON_F16] = {"f16", 2},
    [TIGON_BF16] = {"bf16", 2},       [TIGON_I32] = {"i32", 4}, [TIGON_I64] = {"i64", 8},
    [TIGON_F8E4M3] = {"f8e4m3", 1},   [TIGON_I8] = {"i8", 1},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int known(tigon_dtype dtype) { return (int)dtype >= 0 && (int)dtype < DTYPES; }

size_t tigon_dtype_size(tigon_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *tigon_dtype_name(tigon_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "none"; }

tigon_dtype tigon_dtype_from_name(const char *name) {
  for (int i = 1; name && i < DTYPES; ++i)
    if (strcmp(name, dtypes[i].name) == 0) return (tigon_dtype)i;
  return TIGON_DTYPE_NONE;
}
