# The OpenCL kernels: the library holds each file of src/opencl/kernel, and formulas of src/core that they include, as text, which a device's
# driver compiles. tigon_opencl_sources is what to assemble for that.
enable_language(ASM)
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/opencl/kernel/*")
foreach(name logistic policy_terms preference_terms shared)
  list(APPEND sources "${PROJECT_SOURCE_DIR}/src/core/${name}.h")
endforeach()
set(folder "${PROJECT_BINARY_DIR}/opencl")
set(list "")
set(tigon_opencl_sources "")
foreach(source ${sources})
  get_filename_component(name "${source}" NAME)
  if(source MATCHES "/src/core/")
    set(name "core/${name}")
  endif()
  string(MAKE_C_IDENTIFIER "${name}" symbol)
  string(APPEND list "TIGON_OPENCL_SOURCE(${symbol}, \"${name}\")\n")
  file(CONFIGURE OUTPUT "${folder}/${symbol}.S" CONTENT [[
  .section .rodata
  .globl tigon_opencl_source_@symbol@, tigon_opencl_end_@symbol@
  .hidden tigon_opencl_source_@symbol@, tigon_opencl_end_@symbol@
tigon_opencl_source_@symbol@:
  .incbin "@source@"
tigon_opencl_end_@symbol@:
  .byte 0
  .section .note.GNU-stack,"",@progbits
#ifdef __CET__
#include <cet.h>
#endif
]] @ONLY)
  set_source_files_properties("${folder}/${symbol}.S" PROPERTIES OBJECT_DEPENDS "${source}")
  list(APPEND tigon_opencl_sources "${folder}/${symbol}.S")
endforeach()
file(CONFIGURE OUTPUT "${folder}/tigon_opencl_sources.def" CONTENT "${list}" @ONLY)
