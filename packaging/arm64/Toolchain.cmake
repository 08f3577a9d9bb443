# Builds for arm64 Linux on another machine: Debian's cross compiler, the libraries of sysroot.sh, qemu for
# what runs during the build and for the tests. Preset arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(QUIRE_ARM64_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-sysroot CACHE PATH "Folder that sysroot.sh filled")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QUIRE_ARM64_SYSROOT)
get_filename_component(CMAKE_SYSROOT ${QUIRE_ARM64_SYSROOT} ABSOLUTE)
if(NOT EXISTS ${CMAKE_SYSROOT}/complete)
  message(FATAL_ERROR "${CMAKE_SYSROOT} is not complete: run packaging/arm64/sysroot.sh")
endif()
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Boost's headers put their own paths into programs, which are to be the same wherever they are built.
set(CMAKE_CXX_FLAGS_INIT "-ffile-prefix-map=${CMAKE_SYSROOT}=")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_DIR} "")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
# A processor with everything that qemu knows; -cpu cortex-a72 has neither dotprod nor i8mm, neoverse-n1
# dotprod alone.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-cpu;max,pauth-impdef=on;-L;${CMAKE_SYSROOT})
