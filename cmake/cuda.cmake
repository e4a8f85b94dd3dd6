# The CUDA kernels: each src/cuda/<op>.cu becomes a fat binary, which the library holds as data; tigon_cuda_images is what to
# compile for that. The host side needs none of CUDA, so that without nvcc all but the kernels is built.
# `pip install .` passes the environment on, and no -D by itself.
set(default AUTO)
if(DEFINED ENV{TIGON_CUDA})
  set(default "$ENV{TIGON_CUDA}")
endif()
set(TIGON_CUDA "${default}" CACHE STRING
  "CUDA kernels: AUTO (where nvcc is found, for the GPUs that are here or that TIGON_CUDA_ARCHITECTURES names), ON or OFF")
set_property(CACHE TIGON_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TIGON_CUDA_ARCHITECTURES "" CACHE STRING
  "Compute capabilities to compile for, as 80;90;120, or 80-virtual for PTX; empty: those of the GPUs that are here, and with ON where there are none 90;90-virtual")
set(TIGON_CUDA_COMPRESS balance CACHE STRING
  "How nvcc 13 compresses kernels: balance, or size, which takes an eighth more of its time and a third off the bytes")
option(TIGON_CUDA_QUICK "Compile CUDA kernels in half of the time, for tests without a GPU: they are slow")

set(tigon_cuda_images "")
find_program(TIGON_NVCC nvcc HINTS /usr/local/cuda/bin)
if(TIGON_CUDA STREQUAL "ON" AND NOT TIGON_NVCC)
  message(FATAL_ERROR "tigon: TIGON_CUDA is ON and no nvcc was found")
endif()
if(NOT TIGON_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "tigon: TIGON_CUDA is ${TIGON_CUDA}, must be AUTO, ON or OFF")
endif()
macro(tigon_without_cuda reason) # returns from this file
  set(tigon_no_cuda_because "${reason}")
  message(STATUS "tigon: no CUDA kernels, because ${reason}")
  return()
endmacro()
if(TIGON_CUDA STREQUAL "OFF")
  tigon_without_cuda("TIGON_CUDA was OFF")
elseif(NOT TIGON_NVCC)
  tigon_without_cuda("nvcc was not found")
endif()

# What this nvcc can compile, as 80;86;89;90, and its major version.
execute_process(COMMAND "${TIGON_NVCC}" --list-gpu-code OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9]+" known "${known}")
execute_process(COMMAND "${TIGON_NVCC}" --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "release ([0-9]+)" version "${version}")
set(cuda_major ${CMAKE_MATCH_1})

set(targets ${TIGON_CUDA_ARCHITECTURES})
if(NOT targets)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE here ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" here "${here}")
  string(REPLACE "." "" here "${here}")
  foreach(arch ${here})
    if(arch IN_LIST known AND arch GREATER_EQUAL 80)
      list(APPEND targets ${arch})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES targets)
  if(NOT targets AND TIGON_CUDA STREQUAL "ON")
    set(targets 90 90-virtual)
  elseif(NOT targets)
    tigon_without_cuda("no GPU was there to compile for, and TIGON_CUDA_ARCHITECTURES named none")
  endif()
endif()

enable_language(ASM)
set(tigon_cuda_targets ${targets}) # for tigon_environment()
set(optimise -O3)
if(TIGON_CUDA_QUICK)
  set(optimise -Xcicc -O1 -Xptxas -O0)
  list(APPEND tigon_cuda_targets quick)
  install(CODE "message(WARNING \"tigon: these CUDA kernels are slow: TIGON_CUDA_QUICK, which tests without a GPU set, was on\")")
endif()
set(codes "")
set(targets_def "")
foreach(target ${targets})
  if(NOT target MATCHES "^([0-9]+)(-virtual)?$")
    message(FATAL_ERROR "tigon: TIGON_CUDA_ARCHITECTURES has ${target}, must be a number such as 90, or 90-virtual for PTX")
  endif()
  set(arch ${CMAKE_MATCH_1})
  set(virtual "${CMAKE_MATCH_2}")
  if(arch LESS 80 OR NOT arch IN_LIST known)
    list(JOIN known ", " known)
    message(FATAL_ERROR "tigon: TIGON_CUDA_ARCHITECTURES has ${target}, must be at least 80 and one that nvcc has: ${known}")
  endif()
  if(virtual)
    list(APPEND codes -gencode arch=compute_${arch},code=compute_${arch})
    string(APPEND targets_def "TIGON_CUDA_TARGET(${arch}, true)\n")
  else()
    list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
    string(APPEND targets_def "TIGON_CUDA_TARGET(${arch}, false)\n")
  endif()
endforeach()
# wgmma is sm_90a's only, and no later GPU runs it. So files *_wgmma.cu are compiled for it in place of 90, and are empty for others: the
# launcher takes them where cuda_images_wgmma() says so.
string(REPLACE "arch=compute_90,code=sm_90" "arch=compute_90a,code=sm_90a" codes_90a "${codes}")
# Machine code becomes a sixteenth. Drivers for CUDA 12.0 to 12.3 cannot read it, and nvcc 13 needs a newer one anyway.
set(compress "")
if(cuda_major GREATER_EQUAL 13)
  set(compress --compress-mode=${TIGON_CUDA_COMPRESS})
endif()

file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cuda/*.cu")
set(folder "${PROJECT_BINARY_DIR}/cuda")
set(list "")
set(binaries "")
foreach(kernel ${kernels})
  get_filename_component(name "${kernel}" NAME_WE)
  string(APPEND list "TIGON_CUDA_IMAGE(${name})\n")
  set(of ${codes})
  if(name MATCHES "_wgmma$")
    set(of ${codes_90a})
  endif()
  add_custom_command(OUTPUT "${folder}/${name}.fatbin"
    COMMAND "${TIGON_NVCC}" -fatbin -std=c++17 ${optimise} -Werror all-warnings ${compress} ${of}
      -I "${PROJECT_SOURCE_DIR}/src" -I "${PROJECT_SOURCE_DIR}/include"
      -MD -MF "${folder}/${name}.d" -o "${folder}/${name}.fatbin" "${kernel}"
    DEPENDS "${kernel}" DEPFILE "${folder}/${name}.d" VERBATIM
    COMMENT "Building CUDA fat binary ${name}")
  file(CONFIGURE OUTPUT "${folder}/${name}.S" CONTENT [[
  .section .rodata
  .balign 64
  .globl tigon_cuda_image_@name@
  .hidden tigon_cuda_image_@name@
tigon_cuda_image_@name@:
  .incbin "@folder@/@name@.fatbin"
  .section .note.GNU-stack,"",@progbits
#ifdef __CET__
#include <cet.h>
#endif
]] @ONLY)
  set_source_files_properties("${folder}/${name}.S" PROPERTIES OBJECT_DEPENDS "${folder}/${name}.fatbin")
  list(APPEND tigon_cuda_images "${folder}/${name}.S")
  list(APPEND binaries "${folder}/${name}.fatbin")
endforeach()
list(LENGTH kernels count)
list(JOIN targets ", " parts)
message(STATUS "tigon: ${count} CUDA kernels for compute capability ${parts} by ${TIGON_NVCC}, which takes some minutes "
  "(TIGON_CUDA=OFF leaves them out)")
if(NOT targets MATCHES "(^|;)[0-9]+(;|$)")
  message(STATUS "tigon: no machine code: a GPU's driver compiles PTX when it is first used, and kernels with wgmma are left out")
endif()
add_custom_target(tigon_cuda_kernels DEPENDS ${binaries})
file(CONFIGURE OUTPUT "${folder}/tigon_cuda_images.def" CONTENT "${list}" @ONLY)
file(CONFIGURE OUTPUT "${folder}/tigon_cuda_targets.def" CONTENT "${targets_def}#define TIGON_CUDA_TARGETS \"${parts}\"
#define TIGON_CUDA_MAJOR ${cuda_major}
" @ONLY)
