# The CUDA kernels: each src/cuda/<op>.cu becomes a fat binary, which the library holds as data; tigon_cuda_images is what to
# compile for that. The host side needs none of CUDA, so that without nvcc all but the kernels is built.
# `pip install .` passes the environment on, and no -D by itself.
set(default AUTO)
if(DEFINED ENV{TIGON_CUDA})
  set(default "$ENV{TIGON_CUDA}")
endif()
set(TIGON_CUDA "${default}" CACHE STRING "CUDA kernels: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE TIGON_CUDA PROPERTY STRINGS AUTO ON OFF)
# 90a for kernels that need what only that part has. The PTX of the lowest serves GPUs that are not listed.
set(TIGON_CUDA_ARCHITECTURES "90" CACHE STRING "Compute capabilities to compile for, as 80;90;100;120")
set(TIGON_CUDA_FLAGS "-O3" CACHE STRING "How nvcc optimises kernels, as a list")

set(tigon_cuda_images "")
find_program(TIGON_NVCC nvcc HINTS /usr/local/cuda/bin)
if(TIGON_CUDA STREQUAL "ON" AND NOT TIGON_NVCC)
  message(FATAL_ERROR "tigon: TIGON_CUDA is ON and no nvcc was found")
endif()
if(NOT TIGON_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "tigon: TIGON_CUDA is ${TIGON_CUDA}, must be AUTO, ON or OFF")
endif()
set(tigon_no_cuda_because "")
if(TIGON_CUDA STREQUAL "OFF")
  set(tigon_no_cuda_because "TIGON_CUDA was OFF")
elseif(NOT TIGON_NVCC)
  set(tigon_no_cuda_because "nvcc was not found")
endif()
if(tigon_no_cuda_because)
  message(STATUS "tigon: no CUDA kernels, because ${tigon_no_cuda_because}")
  return()
endif()

enable_language(ASM)
set(codes "")
foreach(arch ${TIGON_CUDA_ARCHITECTURES})
  list(APPEND codes -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(GET TIGON_CUDA_ARCHITECTURES 0 lowest)
list(APPEND codes -gencode arch=compute_${lowest},code=compute_${lowest})
# wgmma is sm_90a's alone, which no later part runs. So files *_wgmma.cu are compiled for it in place of 90, and are empty for others: the
# launcher takes them on a GPU of compute capability 9.0 only, where the build has TIGON_HAVE_CUDA_90A.
string(REPLACE "arch=compute_90,code=sm_90" "arch=compute_90a,code=sm_90a" codes_90a "${codes}")
set(tigon_cuda_90a OFF)
if(codes_90a MATCHES "sm_90a")
  set(tigon_cuda_90a ON)
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
    COMMAND "${TIGON_NVCC}" -fatbin -std=c++17 ${TIGON_CUDA_FLAGS} -Werror all-warnings ${of}
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
list(JOIN TIGON_CUDA_ARCHITECTURES ", " parts)
message(STATUS "tigon: ${count} CUDA kernels for compute capability ${parts} by ${TIGON_NVCC}, which takes some minutes "
  "(TIGON_CUDA=OFF leaves them out)")
add_custom_target(tigon_cuda_kernels DEPENDS ${binaries})
file(CONFIGURE OUTPUT "${folder}/tigon_cuda_images.def" CONTENT "${list}" @ONLY)
