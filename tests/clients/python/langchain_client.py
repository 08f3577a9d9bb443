"""An agent with a tool over the OpenAI and the Ollama API; structured output; embeddings of texts, not of token ids."""
import os

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

BASE, MODEL, EMBEDDER = os.environ["BASE_URL"], os.environ["MODEL"], os.environ["EMBEDDER"]
looked_up = []


@tool
def look_up(name: str) -> str:
    """Looks a name up."""
    looked_up.append(name)
    return "Paris"


class Answer(BaseModel):
    sure: bool


for chat in (ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key="none", max_retries=0),
             ChatOpenAI(model=MODEL, base_url=BASE + "/v1", api_key="none", max_retries=0, use_responses_api=True),
             ChatOllama(model=MODEL, base_url=BASE)):
    before = len(looked_up)
    messages = create_agent(chat, tools=[look_up]).invoke({"messages": [("user", "Where?")]})["messages"]
    assert messages[-1].text == "Done" and len(looked_up) == before + 1, messages
    assert chat.with_structured_output(Answer, method="json_schema").invoke("Sure?").sure in (True, False)

openai = OpenAIEmbeddings(model=EMBEDDER, base_url=BASE + "/v1", api_key="none", check_embedding_ctx_length=False)
ollama = OllamaEmbeddings(model=EMBEDDER, base_url=BASE)
one, other = (embeddings.embed_documents(["a cat", "a dog"]) for embeddings in (openai, ollama))
assert len(one) == len(other) == 2
assert all(abs(a - b) < 1e-6 for a, b in zip(one[0] + one[1], other[0] + other[1]))
