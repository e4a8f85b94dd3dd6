/* Every entry's description, and the checks that are read from it. */
#ifndef TIGON_CORE_SCHEMA_H
#define TIGON_CORE_SCHEMA_H

#include <tigon/schema.h>

#include "core/check.h"

enum { TIGON_MAX_FIELDS = 56, TIGON_MAX_ARGS_BYTES = 4096 };

#define TIGON_SLOT(op, entry) extern const tigon_schema tigon_##op##_##entry##_schema;
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"

#endif
