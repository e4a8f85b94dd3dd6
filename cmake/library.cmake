# libtigon.so, and the same objects as the archive tigon_internal, in which tests and the command line reach what the
# shared library hides (planner, oracle, every CPU variant).
set(rooms core op ffi ref cuda opencl ascend ascend/kernel ascend/plan ascend/sim)
set(cpu_once backend parallel features gemm_provider gemm_openblas gemm_onednn)

set(patterns ${rooms})
list(TRANSFORM patterns REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/\\1/*.c")
file(GLOB sources CONFIGURE_DEPENDS ${patterns})
file(GLOB cpu_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/cpu/*.c")

# The host side of the cpu room is compiled once; everything else there is a kernel.
set(cpu_kernels ${cpu_sources})
list(TRANSFORM cpu_once REPLACE "(.+)" "/\\1\\\\.c$")
list(JOIN cpu_once "|" cpu_once)
list(FILTER cpu_sources INCLUDE REGEX "${cpu_once}")
list(FILTER cpu_kernels EXCLUDE REGEX "${cpu_once}")

function(tigon_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_link_libraries(${name} PRIVATE tigon_library_flags)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
endfunction()

tigon_objects(tigon_host ${sources} ${cpu_sources})
set_target_properties(tigon_host PROPERTIES TIGON_LEVEL 2)
target_compile_options(tigon_host PRIVATE -ffunction-sections -fdata-sections)

# What tigon_environment() says of the build. The commit is that of the last configuration, which a new commit asks for.
set(tigon_commit "not known")
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --show-toplevel --git-path logs/HEAD --short=12 HEAD
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE git_says OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(git_says MATCHES "^([^\n]+)\n([^\n]+)\n([0-9a-f]+)$")
    cmake_path(ABSOLUTE_PATH CMAKE_MATCH_2 BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE git_log)
    if(CMAKE_MATCH_1 STREQUAL PROJECT_SOURCE_DIR) # not the repository of a project that holds this one
      set(tigon_commit "${CMAKE_MATCH_3}")
      if(EXISTS "${git_log}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${git_log}")
      endif()
    endif()
  endif()
endif()
string(TOUPPER "${CMAKE_BUILD_TYPE}" tigon_build_type)
string(STRIP "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${tigon_build_type}}" tigon_c_flags)
list(JOIN TIGON_ISAS " " tigon_isas)
set(tigon_build "${CMAKE_BUILD_TYPE} (${tigon_c_flags}), CPU variants ${tigon_isas}")
if(tigon_cuda_images)
  string(APPEND tigon_build ", CUDA ${tigon_cuda_targets}")
endif()
if(TIGON_SANITIZE)
  string(APPEND tigon_build ", sanitizers ${TIGON_SANITIZE}")
endif()
string(REGEX REPLACE "[\"\\;]" " " tigon_build "${tigon_build}")
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/core/environment.c" PROPERTIES COMPILE_DEFINITIONS
  "TIGON_COMMIT=\"${tigon_commit}\";TIGON_COMPILER=\"${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}\";TIGON_BUILD=\"${tigon_build}\"")
set(objects $<TARGET_OBJECTS:tigon_host>)

set_source_files_properties("${PROJECT_SOURCE_DIR}/src/cuda/backend.c" PROPERTIES
  COMPILE_DEFINITIONS "TIGON_NO_CUDA_BECAUSE=\"${tigon_no_cuda_because}\"")
if(tigon_cuda_images)
  add_library(tigon_cuda_images OBJECT ${tigon_cuda_images})
  target_compile_options(tigon_cuda_images PRIVATE ${tigon_cet})
  # Of the one file, so that the others are not compiled again with and without kernels.
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/cuda/images.c" PROPERTIES
    COMPILE_DEFINITIONS TIGON_HAVE_CUDA_IMAGES=1 INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/cuda")
  list(APPEND objects $<TARGET_OBJECTS:tigon_cuda_images>)
endif()

add_library(tigon_opencl_sources OBJECT ${tigon_opencl_sources})
target_compile_options(tigon_opencl_sources PRIVATE ${tigon_cet})
target_include_directories(tigon_host PRIVATE "${PROJECT_BINARY_DIR}/opencl")
list(APPEND objects $<TARGET_OBJECTS:tigon_opencl_sources>)

if(TIGON_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # The same checks as calls: inline, they are a third of the compiler's time on a kernel. Products run for longer than that.
  set(cpu_rows ${cpu_kernels})
  list(FILTER cpu_rows EXCLUDE REGEX "/(gemm|attention)")
  set_source_files_properties(${cpu_rows} PROPERTIES COMPILE_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
endif()

foreach(isa ${TIGON_ISAS})
  string(TOUPPER ${isa} ISA)
  target_compile_definitions(tigon_host PRIVATE TIGON_HAVE_${ISA}=1)
  if(cpu_kernels)
    set(files ${cpu_kernels})
    if(isa STREQUAL avx512_bf16 AND NOT TIGON_SANITIZE) # which leave out avx512
      # The files of src/cpu/avx512_bf16.def's slots, and what they call.
      list(FILTER files INCLUDE REGEX
        "/((fused_add_|modulated_)?rms_norm|layer_norm|dyt|swiglu|geglu|relu_squared|linear|gemm_builtin|fused_moe(_bwd)?|math_probe|table)\\.c$")
    elseif(isa STREQUAL amx AND NOT TIGON_SANITIZE)
      # The same of src/cpu/amx.def.
      list(FILTER files INCLUDE REGEX "/(linear|gemm_builtin|fused_moe(_bwd)?|math_probe|table)\\.c$")
    endif()
    tigon_objects(tigon_cpu_${isa} ${files})
    target_compile_definitions(tigon_cpu_${isa} PRIVATE TIGON_ISA=${isa} TIGON_ISA_${ISA}=1)
    # Lines for a debugger and a profiler; a kernel's variables, or looking for them, would take a third of the compiler's time.
    target_compile_options(tigon_cpu_${isa} PRIVATE ${TIGON_ISA_FLAGS_${isa}} "$<$<CONFIG:RelWithDebInfo>:-g1;-fno-var-tracking>")
    # At -O0 GCC takes minutes and gigabytes for one of these files, and with gcov it inlines too little at -Og.
    if(CMAKE_C_FLAGS_DEBUG MATCHES "-O0")
      target_compile_options(tigon_cpu_${isa} PRIVATE "$<$<CONFIG:Debug>:-O1>")
    endif()
    list(APPEND objects $<TARGET_OBJECTS:tigon_cpu_${isa}>)
    if(isa STREQUAL scalar AND TIGON_ISAS MATCHES avx2)
      # For x86 CPUs from before 2013 only: less than half of -O3's size. Elsewhere it is all that there is.
      set_target_properties(tigon_cpu_scalar PROPERTIES TIGON_LEVEL s)
    endif()
  endif()
endforeach()
# The linter reads the compile commands; the scalar ones show it all that it can say about a kernel.
foreach(isa avx2 avx512 avx512_bf16 amx)
  if(TARGET tigon_cpu_${isa})
    set_target_properties(tigon_cpu_${isa} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  endif()
endforeach()

set(needs m ${CMAKE_DL_LIBS})

# Not called tigon: that is the file of the command line, and Ninja has one name for both.
add_library(tigon_shared SHARED ${objects})
add_library(tigon::tigon ALIAS tigon_shared)
set_target_properties(tigon_shared PROPERTIES
  OUTPUT_NAME tigon
  EXPORT_NAME tigon
  LINKER_LANGUAGE C
  VERSION "${PROJECT_VERSION}"
  SOVERSION "${PROJECT_VERSION_MAJOR}"
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/tigon.map")
target_include_directories(tigon_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(tigon_shared PRIVATE tigon_library_flags ${needs})
target_link_options(tigon_shared PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/tigon.map")
check_linker_flag(C LINKER:--gc-sections TIGON_LINKER_GC_SECTIONS)
if(TIGON_LINKER_GC_SECTIONS)
  target_link_options(tigon_shared PRIVATE LINKER:--gc-sections)
endif()
if(NOT TIGON_SANITIZE) # whose runtime is found at load time only
  target_link_options(tigon_shared PRIVATE LINKER:-z,defs)
endif()

add_library(tigon_internal STATIC ${objects})
set_target_properties(tigon_internal PROPERTIES LINKER_LANGUAGE C)
target_include_directories(tigon_internal PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(tigon_internal PUBLIC tigon_flags ${needs})
