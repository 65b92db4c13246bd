import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/notices.css";
import "./styles/parts.css";
import "./styles/timeline.css";
import "./styles/slices.css";
import "./styles/lines.css";
import "./styles/panels.css";
import "./styles/diagnosis.css";
import "./styles/answer.css";
import "./styles/print.css";
import { App } from "./app";
import { startKeyboard } from "./keyboard";
import { startLive } from "./live";
import { startPrint } from "./print";
import { startAddress } from "./state";
import { startTheme } from "./theme";

startTheme();
startAddress();
startKeyboard();
startLive();
startPrint();

const place = document.getElementById("page");
if (!place) throw new Error("the page has no place to draw in");
render(<App />, place);
