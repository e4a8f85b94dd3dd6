/* mhc_post_res of a problem, which mhc_coeffs needs, too. */
#ifndef TIGON_OPENCL_MHC_H
#define TIGON_OPENCL_MHC_H

#include "opencl/opencl.h"
#include "problem/mhc.h"

tigon_status opencl_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward);

#endif
