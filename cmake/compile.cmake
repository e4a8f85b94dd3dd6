# How every C file of the project is compiled: the interface target tigon_flags, and tigon_library_flags for the library.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)

set(optimized "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")

add_library(tigon_flags INTERFACE)
target_compile_definitions(tigon_flags INTERFACE _GNU_SOURCE)
target_compile_options(tigon_flags INTERFACE -Wall -Wextra -Wpedantic $<$<BOOL:${TIGON_WERROR}>:-Werror>)
target_link_options(tigon_flags INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
set(tigon_cet "")
if(TIGON_SANITIZE)
  # What UBSan's object-size and null find, AddressSanitizer finds by the byte, and of pointer-overflow what is read or written;
  # without the three a build takes less than half the time.
  target_compile_options(tigon_flags INTERFACE
    -fsanitize=${TIGON_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=object-size,null,pointer-overflow -fno-omit-frame-pointer)
  target_link_options(tigon_flags INTERFACE -fsanitize=${TIGON_SANITIZE})
  target_compile_definitions(tigon_flags INTERFACE TIGON_SANITIZE)
else()
  # A distribution's compiler may define it already, to another level. Where 3 is not known, libc takes 2.
  target_compile_options(tigon_flags INTERFACE -fstack-protector-strong
    "$<${optimized}:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  check_c_compiler_flag(-fcf-protection TIGON_COMPILES_CET)
  if(TIGON_COMPILES_CET)
    # libc's own start files may lack the mark, and the linker then leaves it out. They keep to the shadow stack all the same.
    set(tigon_cet -fcf-protection)
    target_compile_options(tigon_flags INTERFACE ${tigon_cet})
    target_link_options(tigon_flags INTERFACE LINKER:-z,shstk)
  endif()
endif()
check_pie_supported(LANGUAGES C)

find_package(OpenMP COMPONENTS C)
if(OpenMP_C_FOUND)
  target_link_libraries(tigon_flags INTERFACE OpenMP::OpenMP_C)
else()
  message(STATUS "tigon: no OpenMP runtime found, the library runs on one thread")
  target_compile_options(tigon_flags INTERFACE -fopenmp-simd -Wno-unknown-pragmas)
endif()

# The same bits from the same source: no contraction across statements and no -ffast-math, ever. The two -fno- flags
# only drop errno and the order of exception flags, which no operator promises, and let loops over sqrt vectorise.
# -O3 but for targets with the property TIGON_LEVEL, which are smaller and are not what a user waits for.
file(RELATIVE_PATH to_source "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" to_source "${to_source}")
add_library(tigon_library_flags INTERFACE)
target_link_libraries(tigon_library_flags INTERFACE tigon_flags)
target_compile_options(tigon_library_flags INTERFACE
  $<${optimized}:-O$<IF:$<BOOL:$<TARGET_PROPERTY:TIGON_LEVEL>>,$<TARGET_PROPERTY:TIGON_LEVEL>,3>> -fno-math-errno -fno-trapping-math -ffp-contract=off
  # Builds in two folders give the same library, wherever they lie: Ninja and ccache write some paths relative to the build.
  "$<${optimized}:-ffile-prefix-map=${to_source}=.;-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.;-ffile-prefix-map=${PROJECT_BINARY_DIR}=.>")
target_link_options(tigon_library_flags INTERFACE LINKER:--build-id=sha1)

# Instruction sets: name, then the flags. The files of src/cpu are compiled once for each of these.
set(TIGON_CPU_VARIANTS all CACHE STRING "CPU kernels: all variants, or native: scalar and what is best on this CPU, in less time")
set_property(CACHE TIGON_CPU_VARIANTS PROPERTY STRINGS all native)
if(NOT TIGON_CPU_VARIANTS MATCHES "^(all|native)$")
  message(FATAL_ERROR "tigon: TIGON_CPU_VARIANTS is ${TIGON_CPU_VARIANTS}, must be all or native")
endif()
set(TIGON_ISAS scalar)
set(TIGON_ISA_FLAGS_scalar "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(TIGON_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(TIGON_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl ${TIGON_ISA_FLAGS_avx2}
    -mprefer-vector-width=512)
  set(TIGON_ISA_FLAGS_avx512_bf16 ${TIGON_ISA_FLAGS_avx512} -mavx512bf16 -DTIGON_ISA_AVX512=1)
  set(TIGON_ISA_FLAGS_amx ${TIGON_ISA_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16 -DTIGON_ISA_AVX512_BF16=1)
  set(isas avx2 avx512 avx512_bf16 amx)
  # Sanitizers are slow to build and to run: beside scalar the one that this CPU takes.
  if((TIGON_SANITIZE OR TIGON_CPU_VARIANTS STREQUAL "native") AND EXISTS /proc/cpuinfo)
    set(isas "")
    foreach(isa amx_bf16 avx512_bf16 avx512bw avx2)
      file(STRINGS /proc/cpuinfo has REGEX "${isa}" LIMIT_COUNT 1)
      if(has)
        string(REPLACE bw "" isas ${isa})
        string(REPLACE amx_bf16 amx isas ${isas})
        break()
      endif()
    endforeach()
    if(NOT TIGON_SANITIZE) # most kernels of the last are those of the ones before
      if(isas STREQUAL "amx")
        set(isas avx512 avx512_bf16 amx)
      elseif(isas STREQUAL "avx512_bf16")
        set(isas avx512 avx512_bf16)
      endif()
    endif()
  endif()
  foreach(isa ${isas})
    list(JOIN TIGON_ISA_FLAGS_${isa} " " flags)
    check_c_compiler_flag("${flags}" TIGON_COMPILES_${isa})
    if(TIGON_COMPILES_${isa})
      list(APPEND TIGON_ISAS ${isa})
    endif()
  endforeach()
endif()
if(TIGON_CPU_VARIANTS STREQUAL "native")
  list(JOIN TIGON_ISAS " and " isas)
  message(STATUS "tigon: CPU kernels ${isas}, for this CPU. Others run scalar, which is slow (TIGON_CPU_VARIANTS=all has every variant)")
endif()
