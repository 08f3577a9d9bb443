# Portable programs (QUIRE_PORTABLE): linked against the C library of sysroot.sh, everything else static. What
# Debian has as static library is taken from there, the rest from the folder of static_libraries.sh. Objects
# are those of the release preset: only linking differs.
set(QUIRE_PORTABLE_SYSROOT ${CMAKE_SOURCE_DIR}/build/portable-sysroot CACHE PATH "Folder that sysroot.sh filled")
set(QUIRE_PORTABLE_LIBRARIES ${CMAKE_SOURCE_DIR}/build/portable-libraries CACHE PATH "Folder that static_libraries.sh filled")
foreach(folder ${QUIRE_PORTABLE_SYSROOT} ${QUIRE_PORTABLE_LIBRARIES})
  if(NOT EXISTS ${folder}/complete)
    message(FATAL_ERROR "${folder} is not complete: run packaging/tarball/build.sh")
  endif()
endforeach()

# quire_find_static(VARIABLE NAME...): the paths of libNAME.a.
function(quire_find_static variable)
  set(found)
  foreach(name ${ARGN})
    # That folder lies outside a cross compiler's sysroot.
    find_library(QUIRE_STATIC_${name} NAMES lib${name}.a PATHS ${QUIRE_PORTABLE_LIBRARIES}/lib NO_DEFAULT_PATH
                 NO_CMAKE_FIND_ROOT_PATH)
    find_library(QUIRE_STATIC_${name} NAMES lib${name}.a REQUIRED)
    list(APPEND found ${QUIRE_STATIC_${name}})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# quire_link_statically(TARGET NAME...): users of an interface target link these archives.
function(quire_link_statically target)
  quire_find_static(archives ${ARGN})
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
endfunction()

# quire_import_statically(TARGET NAME): an imported library is this archive.
function(quire_import_statically target name)
  quire_find_static(archive ${name})
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive})
  foreach(configuration ${configurations})
    if(configuration)
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
    endif()
  endforeach()
endfunction()

quire_link_statically(PkgConfig::EDIT edit tinfo bsd md)
quire_link_statically(PkgConfig::HWY hwy)
quire_link_statically(PkgConfig::JPEG jpeg)
quire_link_statically(PkgConfig::PCRE2 pcre2-8)
quire_link_statically(PkgConfig::PNG png16 z)
quire_link_statically(PkgConfig::PROMETHEUS prometheus-cpp-core)
quire_link_statically(PkgConfig::SECCOMP seccomp)
quire_link_statically(PkgConfig::UTF8PROC utf8proc)
quire_link_statically(PkgConfig::WEBP webp)
quire_link_statically(PkgConfig::ZLIB z)
quire_link_statically(PkgConfig::ZSTD zstd)
set_target_properties(PkgConfig::SYSTEMD PROPERTIES INTERFACE_LINK_LIBRARIES "")  # service_manager.cc
quire_import_statically(fmt::fmt fmt)
quire_import_statically(spdlog::spdlog spdlog)
quire_import_statically(OpenSSL::SSL ssl)
quire_import_statically(OpenSSL::Crypto crypto)

add_library(quire_portable OBJECT packaging/portable/glibc_additions.cc packaging/portable/glibc_math.cc
            packaging/portable/service_manager.cc)
# A function that is defined in terms of its older version, not of itself.
set_source_files_properties(packaging/portable/glibc_math.cc PROPERTIES COMPILE_OPTIONS -fno-builtin)
set(CMAKE_SKIP_RPATH ON)
set(libraries ${QUIRE_PORTABLE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
add_link_options(--sysroot=${QUIRE_PORTABLE_SYSROOT} -B${libraries} -L${libraries}
                 -L${QUIRE_PORTABLE_SYSROOT}/lib/${CMAKE_LIBRARY_ARCHITECTURE} -static-libstdc++ -static-libgcc
                 LINKER:-z,relro,-z,now,--build-id=sha1,--no-as-needed -lpthread -ldl)
