/* The slots that Ascend fills, and what workspace some need; each is in the file of its op. */
#ifndef TIGON_ASCEND_ASCEND_H
#define TIGON_ASCEND_ASCEND_H

#include "ascend/launch.h"

#define TIGON_SLOT(op, entry) tigon_##op##_##entry##_fn ascend_##op##_##entry;
#define TIGON_WORKSPACE(op, entry) tigon_##op##_##entry##_bytes ascend_##op##_##entry##_bytes;
#include "ops.def"

#endif
