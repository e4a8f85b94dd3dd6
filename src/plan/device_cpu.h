/* The description of the CPU that this process runs on. */
#ifndef TIGON_PLAN_DEVICE_CPU_H
#define TIGON_PLAN_DEVICE_CPU_H

#include "plan/plan.h"

/* Reads /sys and sysconf(); allocates nothing. */
void tigon_device_desc_query_cpu(tigon_device_desc *desc);

/* Bytes of "2048K", "1M" or "65536" as /sys writes a cache size; 0 for anything else. */
int64_t tigon_cpu_parse_size(const char *text);

/* CPUs in "0-3,8,10-11" as /sys writes a list; 0 for anything else. */
int64_t tigon_cpu_parse_list(const char *text);

#endif
