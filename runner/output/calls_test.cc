// The readers of calls: every form of value, and text that is not a call.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/output/testing/parse_whole.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

struct Case {
  ReadCalls read;
  std::string text;
  std::string calls;  // names and arguments; empty = none
  Reading reading = Reading::kCalls;
};

void Check(const std::vector<Case>& cases) {
  const Tools tools(testing::SomeTools());
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    std::vector<api::ToolCall> calls;
    EXPECT_EQ(one.read(one.text, tools, calls), one.reading);
    std::string read;
    for (const auto& call : calls) {
      EXPECT_TRUE(nlohmann::json::accept(call.arguments_json)) << call.arguments_json;
      read += (read.empty() ? "" : " ") + call.name + call.arguments_json;
    }
    EXPECT_EQ(read, one.calls);
  }
}

TEST(Calls, Json) {
  Check({
      {ReadJsonCalls, R"( {"name": "f", "arguments": {"a": 1}} )", R"(f{"a":1})"},
      {ReadJsonCalls, R"({"name": "f", "parameters": {}})", "f{}"},
      {ReadJsonCalls, R"({"name": "f"})", "f{}"},
      {ReadJsonCalls, R"({"name": "f", "arguments": "{\"a\": \"}\"}"})", R"(f{"a":"}"})"},
      {ReadJsonCalls, R"([{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": [1, 2]}}])",
       R"(f{} g{"x":[1,2]})"},
      {ReadJsonCalls, "{\"name\": \"f\"}\n{\"name\": \"g\"}", "f{} g{}"},
      {ReadJsonCalls, R"({"name": "f"}; {"name": "g"})", "f{} g{}"},
      {ReadJsonCalls, R"({"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}})",
       R"(f{"z":1,"a":2})"},
      {ReadJsonCalls, R"({"name": "f", "arguments": {"s": "a \"b\" {é} \\ \u00e9 \ud83d\ude00"}})",
       R"(f{"s":"a \"b\" {é} \\ é 😀"})"},
      {ReadJsonCalls, R"({"name": "f", "arguments": {"a": )", "", Reading::kIncomplete},
      {ReadJsonCalls, R"({"name": "f", "arguments": {"a": "})", "", Reading::kIncomplete},
      {ReadJsonCalls, "", "", Reading::kIncomplete},
      {ReadJsonCalls, "[]", "", Reading::kMalformed},
      {ReadJsonCalls, "[[]]", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": 1})", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": ""})", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": "f", "arguments": [1]})", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": "f", "arguments": {1}})", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": "f"]})", "", Reading::kMalformed},
      {ReadJsonCalls, R"({"name": "f"} and more)", "", Reading::kMalformed},
      {ReadJsonCalls, std::string(100000, '['), "", Reading::kMalformed},
  });
}

TEST(Calls, BetweenMarkers) {
  const std::string f = "<｜tool▁call▁begin｜>f<｜tool▁sep｜>", end = "<｜tool▁call▁end｜>";
  const std::string typed =
      "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n```" + end;
  Check({
      {ReadDeepSeekCalls, f + R"({"a": 1})" + end, R"(f{"a":1})"},
      {ReadDeepSeekCalls, "\n" + f + R"({"a": "<｜tool▁call▁end｜>"})" + end + "\n" + f + "{}",
       R"(f{"a":"<｜tool▁call▁end｜>"} f{})"},
      {ReadDeepSeekCalls, typed, R"(f{"a":"```"})"},
      {ReadDeepSeekCalls, typed + "\n" + typed, R"(f{"a":"```"} f{"a":"```"})"},
      {ReadDeepSeekCalls, f, "", Reading::kIncomplete},
      {ReadDeepSeekCalls, f + R"({"a": )", "", Reading::kIncomplete},
      {ReadDeepSeekCalls, "<｜tool▁ca", "", Reading::kIncomplete},
      {ReadDeepSeekCalls, f + "{}" + "<｜tool", "", Reading::kIncomplete},
      {ReadDeepSeekCalls, "f{}", "", Reading::kMalformed},
      {ReadDeepSeekCalls, "<｜tool▁call▁begin｜><｜tool▁sep｜>{}", "", Reading::kMalformed},
      {ReadDeepSeekCalls, f + "{}x", "", Reading::kMalformed},
      {ReadDeepSeekCalls, f + "{1}", "", Reading::kMalformed},
      {ReadKimiCalls,
       R"(<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>)",
       R"(f{"a":1})"},
      {ReadKimiCalls, "<|tool_call_begin|>f<|tool_call_argument_begin|>{}", "f{}"},
      {ReadKimiCalls, "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}", "",
       Reading::kMalformed},
      {ReadKimiCalls, "<|tool_call_begin|>f:0<|tool_call_argument_begin|>no {}", "", Reading::kMalformed},
      {ReadSolarCalls,
       R"(<|tool_call:begin|>a1<|tool_call:name|>f<|tool_call:args|>{"a": 1}<|tool_call:end|>)",
       R"(f{"a":1})"},
      {ReadSolarCalls, "<|tool_call:begin|>f<|tool_call:args|>{}", "", Reading::kMalformed},
      {ReadKeyedCalls, R"([{"f": {"a": 1}}, {"g": {}}])", R"(f{"a":1} g{})"},
      {ReadKeyedCalls, R"([{"f": {"a": )", "", Reading::kIncomplete},
      {ReadKeyedCalls, R"([{"f": 1}])", "", Reading::kMalformed},
      {ReadKeyedCalls, R"([{"f": {}, "g": {}}])", "", Reading::kMalformed},
      {ReadKeyedCalls, "[]", "", Reading::kMalformed},
      {ReadKeyedCalls, "{}", "", Reading::kMalformed},
      {ReadJsonCalls, R"([{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}])", R"(f{"a":1})"},
  });
  std::vector<api::ToolCall> calls;
  ReadKimiCalls("<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}", Tools(), calls);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].id, "functions.f:3") << "the template asks for it";
}

TEST(Calls, EndTagsInListsAndObjectsArePartOfThem) {
  Check({
      {ReadTaggedCalls, "<function=add>\n<parameter=tags>\n[\"</parameter>\", 1]\n</parameter>\n</function>",
       R"(add{"tags":["</parameter>",1]})"},
      {ReadTaggedCalls, "add\n<arg_key>opts</arg_key>\n<arg_value>{\"a\": \"</arg_value>\"}</arg_value>\n",
       R"(add{"opts":{"a":"</arg_value>"}})"},
      {ReadTaggedCalls, "add<arg_key>opts</arg_key><arg_value>{'a': \"it's\"}</arg_value>",
       R"(add{"opts":{"a":"it's"}})"},
      {ReadInvokeCalls,
       "<invoke name=\"add\">\n<parameter name=\"tags\">[\"</parameter>\"]</parameter>\n"
       "<parameter name=\"note\">\n{x\n</parameter>\n</invoke>\n<invoke name=\"now\"></invoke>",
       R"(add{"tags":["</parameter>"],"note":"\n{x\n"} now{})"},
      {ReadInvokeCalls, R"({"name": "now", "arguments": {}})", "now{}"},
      {ReadDsmlCalls,
       "\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"tags\" "
       "string=\"false\">[\"x\"]</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"note\" string=\"true\">12</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
       "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n",
       R"(add{"tags":["x"],"note":"12"} now{})"},
      {ReadDsmlCalls,
       "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\" "
       "string=\"false\">1</｜DSML｜parameter></｜DSML｜invoke>",
       R"(f{"x":1})"},
      {ReadDsmlCalls,
       "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\" "
       "string=\"no\">1</｜DSML｜parameter></｜DSML｜invoke>",
       "", Reading::kMalformed},
      {ReadDsmlCalls, "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"x\" stri", "",
       Reading::kIncomplete},
      {ReadInvokeCalls, "<invoke name=\"add\">", "", Reading::kIncomplete},
      {ReadInvokeCalls, "<function=add></function>", "", Reading::kMalformed},
  });
}

TEST(Calls, Pythonic) {
  Check({
      {ReadPythonicCalls, "f(a=\"x\")\ng(b=[1, 2], c={\"d\": true})",
       R"(f{"a":"x"} g{"b":[1,2],"c":{"d":true}})"},
      {ReadPythonicCalls, R"([get_weather(city="Paris")])", R"(get_weather{"city":"Paris"})"},
      {ReadPythonicCalls, R"(get_weather(city='Paris', days=3))", R"(get_weather{"city":"Paris","days":3})"},
      {ReadPythonicCalls, "[now()]", "now{}"},
      {ReadPythonicCalls, "[now(), now()]", "now{} now{}"},
      {ReadPythonicCalls, R"([f(a=1, b=-2.5, c=1e3, d=True, e=False, g=None, h=true, i=null)])",
       R"(f{"a":1,"b":-2.5,"c":1000.0,"d":true,"e":false,"g":null,"h":true,"i":null})"},
      {ReadPythonicCalls, R"([f(l=[1, "two", [3]], t=(1, 2), d={"k": {'n': [None]}, 'm': "v"}, e=[], o={})])",
       R"(f{"l":[1,"two",[3]],"t":[1,2],"d":{"k":{"n":[null]},"m":"v"},"e":[],"o":{}})"},
      {ReadPythonicCalls, R"py([f(s="He said \"hi\" and 'bye', (ok) = [1]")])py",
       R"js(f{"s":"He said \"hi\" and 'bye', (ok) = [1]"})js"},
      {ReadPythonicCalls, R"([f(s='it\'s "quoted"\n\ttab \u00e9 \x41 \U0001F600 \ud83d\ude00 \q')])",
       R"(f{"s":"it's \"quoted\"\n\ttab é A 😀 😀 \\q"})"},
      {ReadPythonicCalls, "[f(s=\"\"\"a \"b\"\nc\"\"\")]", R"(f{"s":"a \"b\"\nc"})"},
      {ReadPythonicCalls, R"([f(s="", t='')])", R"(f{"s":"","t":""})"},
      {ReadPythonicCalls, R"([f(s="Zürich 東京")])", R"(f{"s":"Zürich 東京"})"},
      {ReadPythonicCalls, R"([f(s="\ud83d x")])", "f{\"s\":\"\xEF\xBF\xBD x\"}"},
      {ReadPythonicCalls, R"([get_weather("Oslo", 2)])", R"(get_weather{"city":"Oslo","days":2})"},
      {ReadPythonicCalls, R"([f(a=1, a=2)])", R"(f{"a":2})"},
      {ReadPythonicCalls, R"([f(a=1_000, b=.5, c=+1)])", R"(f{"a":1000,"b":0.5,"c":1.0})"},
      {ReadPythonicCalls, R"([ns.f-g_1(a=1,)])", R"(ns.f-g_1{"a":1})"},
      {ReadPythonicCalls, R"([{"name": "f", "arguments": {"a": 1}}])", R"(f{"a":1})"},
      {ReadPythonicCalls, R"([f(s="abc)", "", Reading::kIncomplete},
      {ReadPythonicCalls, R"([f(s="abc")", "", Reading::kIncomplete},
      {ReadPythonicCalls, R"([f(s="abc"))", "", Reading::kIncomplete},
      {ReadPythonicCalls, "[f(n=12", "", Reading::kIncomplete},
      {ReadPythonicCalls, "", "", Reading::kIncomplete},
      {ReadPythonicCalls, "[unknown(1)]", "", Reading::kMalformed},
      {ReadPythonicCalls, "[f(a=b)]", "", Reading::kMalformed},
      {ReadPythonicCalls, "[f(a=1 b=2)]", "", Reading::kMalformed},
      {ReadPythonicCalls, "[f(a=1)] then", "", Reading::kMalformed},
      {ReadPythonicCalls, "[]", "", Reading::kMalformed},
      {ReadPythonicCalls, "[f(a=0x1)]", "", Reading::kMalformed},
      {ReadPythonicCalls, "[f(a=" + std::string(100000, '[') + ")]", "", Reading::kMalformed},
  });
}

TEST(Calls, Tagged) {
  const std::string weather = "<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n";
  Check({
      {ReadTaggedCalls, "\n{\"name\": \"f\"}\n", "f{}"},
      {ReadTaggedCalls, weather + "</function>", R"(get_weather{"city":"Zürich"})"},
      {ReadTaggedCalls, "<function=now>\n</function>", "now{}"},
      {ReadTaggedCalls, "<function=now></function><function=now></function>", "now{} now{}"},
      // The schema decides what a text is.
      {ReadTaggedCalls,
       "<function=get_weather><parameter=city>12</parameter><parameter=days>12</parameter></function>",
       R"(get_weather{"city":"12","days":12})"},
      {ReadTaggedCalls,
       "<function=add><parameter=a>1.5</parameter><parameter=b>null</parameter><parameter=opts>\n{\"r\": "
       "true}\n</parameter><parameter=tags>['x', \"y\"]</parameter><parameter=note>null</parameter>"
       "<parameter=exact>True</parameter><parameter=any>7</parameter></function>",
       R"(add{"a":1.5,"b":null,"opts":{"r":true},"tags":["x","y"],"note":null,"exact":true,"any":7})"},
      {ReadTaggedCalls,
       "<function=add><parameter=a>about two</parameter><parameter=note>12</parameter></function>",
       R"(add{"a":"about two","note":"12"})"},
      {ReadTaggedCalls, "<function=get_weather><parameter=unit>celsius</parameter></function>",
       R"(get_weather{"unit":"celsius"})"},
      {ReadTaggedCalls, "<function=f><parameter=code>\nif a < b:\n  x = \"</p>\"\n\n</parameter></function>",
       R"(f{"code":"if a < b:\n  x = \"</p>\"\n"})"},
      {ReadTaggedCalls,
       "get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>2</arg_value>\n",
       R"(get_weather{"city":"Oslo","days":2})"},
      {ReadTaggedCalls, "now\n", "now{}"},
      {ReadTaggedCalls, weather, "", Reading::kIncomplete},
      {ReadTaggedCalls, "<function=f><parameter=a>1", "", Reading::kIncomplete},
      {ReadTaggedCalls, "<func", "", Reading::kIncomplete},
      {ReadTaggedCalls, "<function=></function>", "", Reading::kMalformed},
      {ReadTaggedCalls, "<b>bold</b>", "", Reading::kMalformed},
      {ReadTaggedCalls, "hello", "", Reading::kMalformed},
      {ReadFunctionCall, R"(f>{"a": 1})", R"(f{"a":1})"},
      {ReadFunctionCall, "f>{\"a\": ", "", Reading::kIncomplete},
      {ReadFunctionCall, "f>text", "", Reading::kMalformed},
  });
}

TEST(Calls, Gemma) {
  Check({
      {ReadGemmaCalls, R"(call:get_weather{city:<|"|>Zürich<|"|>,unit:<|"|>celsius<|"|>})",
       R"(get_weather{"city":"Zürich","unit":"celsius"})"},
      {ReadGemmaCalls, "call:add{a:1,b:2.5,opts:{round:true}}",
       R"(add{"a":1,"b":2.5,"opts":{"round":true}})"},
      {ReadGemmaCalls, "call:now{}", "now{}"},
      {ReadFunctionGemmaCalls, R"(call:f{s:<escape>a "b", {c}<escape>,l:[1,<escape>x<escape>],b:true})",
       R"(f{"s":"a \"b\", {c}","l":[1,"x"],"b":true})"},
      {ReadFunctionGemmaCalls, "call:f{s:<escape>a", "", Reading::kIncomplete},
      {ReadGemmaCalls, R"(call:f{s:<|"|>a "b", {c}: [d]<|"|>,l:[1,<|"|>x<|"|>,[]],n:null,w:bare word})",
       R"(f{"s":"a \"b\", {c}: [d]","l":[1,"x",[]],"n":null,"w":"bare word"})"},
      {ReadGemmaCalls, R"(call:f{<|"|>k k<|"|>:"v\n"})", R"(f{"k k":"v\n"})"},
      {ReadGemmaCalls, R"(call:f{s:<|"|>a}<tool_call|>)", "", Reading::kIncomplete},
      {ReadGemmaCalls, "call:f{a:1", "", Reading::kIncomplete},
      {ReadGemmaCalls, "call:f", "", Reading::kIncomplete},
      {ReadGemmaCalls, "f{a:1}", "", Reading::kMalformed},
      {ReadGemmaCalls, "call:{a:1}", "", Reading::kMalformed},
      {ReadGemmaCalls, "call:f{a:}", "", Reading::kMalformed},
      {ReadGemmaCalls, "call:f{a:1} more", "", Reading::kMalformed},
  });
}

TEST(Calls, Mistral) {
  Check({
      {ReadMistralCalls, R"([{"name": "f", "arguments": {"a": 1}}])", R"(f{"a":1})"},
      {ReadMistralCalls, R"(f[ARGS]{"a": 1})", R"(f{"a":1})"},
      {ReadMistralCalls, R"(f{"a": 1})", R"(f{"a":1})"},
      {ReadMistralCalls, R"(f[CALL_ID]abc123def[ARGS]{"a": "[ARGS]"})", R"(f{"a":"[ARGS]"})"},
      {ReadMistralCalls, R"(f[ARGS]{"a": )", "", Reading::kIncomplete},
      {ReadMistralCalls, "f[ARGS]", "", Reading::kIncomplete},
      {ReadMistralCalls, R"([ARGS]{"a": 1})", "", Reading::kMalformed},
  });
}

}  // namespace
}  // namespace quire::runner::output
