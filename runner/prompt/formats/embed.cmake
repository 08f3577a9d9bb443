# cmake -DOUT=FILE.cc "-DFILES=a.jinja;b.jinja" -P embed.cmake: writes the texts of
# runner/prompt/format_table.h.
set(rows "")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME_WLE)
  file(READ ${path} text)
  string(APPEND rows "    {\"${name}\", R\"jinja(${text})jinja\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"runner/prompt/format_table.h\"\n\nnamespace quire::runner {\nnamespace {\n
constexpr FormatText kFormatTexts[] = {\n${rows}};\n\n}  // namespace\n
std::span<const FormatText> AllFormatTexts() { return kFormatTexts; }\n\n}  // namespace quire::runner\n")
