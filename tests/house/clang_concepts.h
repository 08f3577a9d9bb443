// Read before everything else by clang-tidy only. libstdc++ 12 offers <expected> to compilers that claim the
// final form of concepts; clang 16 has what <expected> needs of it but claims an earlier one.
#pragma once
#pragma GCC system_header
#undef __cpp_concepts
#define __cpp_concepts 202002L
