/* How work-items deal out rows, and what those that share a row find together. A kernel that does has ROOM, and gives `space` to functions that
 * do, as the parameter `room space`. */

#define ADD(a, b) ((a) + (b))
/* A NaN stays. */
#define LARGER(a, b) (isnan(a) || (a) > (b) ? (a) : (b))

/* A number and its place in the row. */
typedef struct place {
  float value;
  long at;
} place;
/* A sum of members, and how many they are. */
typedef struct members {
  pair sum;
  float count;
} members;
/* Up to three sums, or two largest numbers, that are found at once: drivers of CPUs repeat code behind each barrier. */
typedef struct triple {
  pair of[3];
} triple;
typedef struct tops {
  float of[2];
} tops;

#if GROUP == 1
#define row_first() ((long)get_global_id(0))
#define row_step() ((long)get_global_size(0))
#define row_lane() 0L
#define row_leads() true
typedef int room;
#define ROOM            \
  const room space = 0; \
  (void)space;
#define row_sum(v) (v)
#define row_max(v) (v)
#define row_pair(v) (v)
#define room_wait()
#else
#define row_first() ((long)get_group_id(0))
#define row_step() ((long)get_num_groups(0))
#define row_lane() ((long)get_local_id(0))
#define row_leads() (get_local_id(0) == 0) /* writes what a row has one of */

/* What a work-item gives. */
typedef union slot {
  float number;
  pair sum;
  place place;
  members members;
  triple triple;
  tops tops;
} slot;
typedef __local slot *room;
#define ROOM                      \
  __local slot room_slots[GROUP]; \
  const room space = room_slots;
/* What all have read may be written over, and what all have written be read. */
#define room_wait() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

#define TREE(name, type, field, combine)                                                       \
  static inlined type name(room space, type v) {                                               \
    const int at = (int)get_local_id(0);                                                       \
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read what it last had */                         \
    space[at].field = v;                                                                       \
    for (int half_of = GROUP / 2; half_of > 0; half_of /= 2) {                                 \
      barrier(CLK_LOCAL_MEM_FENCE);                                                            \
      if (at < half_of) space[at].field = combine(space[at].field, space[at + half_of].field); \
    }                                                                                          \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    return space[0].field;                                                                     \
  }
#ifdef SUBGROUPS
#if SUBGROUPS == 1
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#else
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
/* Each subgroup's first, which are then combined in order. */
#define SUBGROUP_TREE(name, combine, of)                                             \
  static inlined float name(room space, float v) {                                   \
    v = of(v);                                                                       \
    if (get_num_sub_groups() == 1) return v;                                         \
    barrier(CLK_LOCAL_MEM_FENCE);                                                    \
    if (get_sub_group_local_id() == 0) space[get_sub_group_id()].number = v;         \
    barrier(CLK_LOCAL_MEM_FENCE);                                                    \
    v = space[0].number;                                                             \
    for (uint i = 1; i < get_num_sub_groups(); ++i) v = combine(v, space[i].number); \
    return v;                                                                        \
  }
static inline float subgroup_max(float v) { return sub_group_any(isnan(v)) ? NAN : sub_group_reduce_max(v); }
SUBGROUP_TREE(tree_sum, ADD, sub_group_reduce_add)
SUBGROUP_TREE(tree_max, LARGER, subgroup_max)
#else
TREE(tree_sum, float, number, ADD)
TREE(tree_max, float, number, LARGER)
#endif
TREE(tree_pair, pair, sum, pair_join)
#define row_sum(v) tree_sum(space, v)
#define row_max(v) tree_max(space, v)
#define row_pair(v) tree_pair(space, v)
#endif
#define row_min(v) (-row_max(-(v)))
