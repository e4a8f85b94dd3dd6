# Headers, library, command line, and the two ways to find them: find_package(tigon) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(TIGON_INSTALL_STRIPPED "Install without debug information; the component `debug` has it (needs objcopy)" ON)

# Strips what was installed of the target. `cmake --install BUILD --component debug` puts its debug information into .debug
# beside it, where debuggers and addr2line look.
function(tigon_install_stripped target folder)
  if(NOT TIGON_INSTALL_STRIPPED OR NOT CMAKE_OBJCOPY)
    return()
  endif()
  string(CONFIGURE [[
    set(tigon_built "$<TARGET_FILE:@target@>")
    if("${tigon_built}" IS_NEWER_THAN "${tigon_built}.debug")
      execute_process(COMMAND "@CMAKE_OBJCOPY@" --only-keep-debug --compress-debug-sections "${tigon_built}" "${tigon_built}.debug"
        COMMAND_ERROR_IS_FATAL ANY)
    endif()
  ]] split @ONLY)
  string(CONFIGURE [[
    execute_process(COMMAND "@CMAKE_OBJCOPY@" --strip-all "--add-gnu-debuglink=${tigon_built}.debug"
      "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/@folder@/$<TARGET_FILE_NAME:@target@>" COMMAND_ERROR_IS_FATAL ANY)
  ]] strip @ONLY)
  install(CODE "${split}${strip}")
  install(CODE "${split} file(INSTALL \"\${tigon_built}.debug\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}/.debug\")"
    COMPONENT debug EXCLUDE_FROM_ALL)
endfunction()

install(TARGETS tigon_shared EXPORT tigonTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
tigon_install_stripped(tigon_shared "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tigon" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
if(TARGET tigon_cli)
  install(TARGETS tigon_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  tigon_install_stripped(tigon_cli "${CMAKE_INSTALL_BINDIR}")
  # The built program writes them itself. Where it cannot run, or help2man is not there, a line says so.
  install(CODE "execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/tools/install-pages\" \"$<TARGET_FILE:tigon_cli>\"
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\" COMMAND_ERROR_IS_FATAL ANY)")
endif()

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tigon")
install(EXPORT tigonTargets NAMESPACE tigon:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tigonConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/tigonConfig.cmake" INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break what the one before it promised.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tigonConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tigonConfig.cmake" "${PROJECT_BINARY_DIR}/tigonConfigVersion.cmake"
  DESTINATION "${package_dir}")

# tigon.pc finds its prefix from where it lies, so an installed tree can be moved.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH pc_to_prefix "/${pc_dir}" "/")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/tigon.pc.in" "${PROJECT_BINARY_DIR}/tigon.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tigon.pc" DESTINATION "${pc_dir}")

# The wheel holds the library once, without the links that name its version.
install(FILES "$<TARGET_FILE:tigon_shared>" DESTINATION tigon/lib RENAME libtigon.so COMPONENT python EXCLUDE_FROM_ALL)

# The package finds its operators when it is imported; editors and type checkers read these stubs instead.
file(GLOB operators CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/tigon/torch/operators/[a-z]*.py")
foreach(kind functional:FUNCTIONS nn:MODULES)
  string(REPLACE ":" ";" kind ${kind})
  list(GET kind 0 module)
  list(GET kind 1 variable)
  set(stub "# Made from python/tigon/torch/operators by cmake/install.cmake.\n")
  foreach(file ${operators})
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" text)
    string(REGEX MATCH "\n${variable} = [^]]*" names "${text}")
    string(REGEX MATCHALL "\"[A-Za-z0-9_]+\"" found "${names}")
    foreach(public ${found})
      string(REPLACE "\"" "" public ${public})
      string(APPEND stub "from tigon.torch.operators.${name} import ${public} as ${public}\n")
    endforeach()
  endforeach()
  file(WRITE "${PROJECT_BINARY_DIR}/stubs/${module}.pyi" "${stub}")
  install(FILES "${PROJECT_BINARY_DIR}/stubs/${module}.pyi" DESTINATION tigon/torch COMPONENT python EXCLUDE_FROM_ALL)
endforeach()
