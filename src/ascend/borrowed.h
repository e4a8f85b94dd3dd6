/* The slots that the simulator borrows from the CPU. */
#ifndef TIGON_ASCEND_BORROWED_H
#define TIGON_ASCEND_BORROWED_H

#include "backend.h"

/* The CPU's best variant, less what is not borrowed. */
const tigon_kernels *ascend_borrowed(void);

#endif
