package evenkeel;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;

/**
 * Storm's part of {@code evenkeel bench}: its messaging layer alone, or topologies in its local cluster.
 *
 * <pre>
 *  receive  --size=N --senders=N --back-port=N --answers=true|false
 *                                                 counts messages; sends each back to that port, or how many came
 *  send     --size=N --senders=N                  sends as fast as it is let, or one message at a time
 *  topology --workers=N --spouts=N --bolts=N --levels=N --acking=true|false --size=N --pending=N
 * </pre>
 *
 * Each reads a line, answers it with a line of JSON, and ends when its input does. What the lines say is in {@link Messaging} and
 * {@link SpeedOfLight}.
 */
public final class Peer {
    private Peer() {}

    /** Answers one line of the input. */
    interface Answers {
        String answer(String[] words) throws Exception;
    }

    public static void main(String[] words) throws Exception {
        // Storm logs to standard output, which is for answers here.
        PrintStream out = System.out;
        System.setOut(System.err);
        System.setProperty("org.apache.logging.log4j.level", "ERROR");
        Options options = new Options(words);
        Answers answers = switch (words[0]) {
            case "receive" -> Messaging.receiver(options);
            case "send" -> Messaging.sender(options);
            case "topology" -> new SpeedOfLight(options);
            default -> throw new IllegalArgumentException("no task " + words[0]);
        };
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answers.answer(line.split(" "));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = "{\"Failed\":\"" + error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}";
            }
            out.println(answer);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** {@code --name=value}, behind the task. */
    static final class Options {
        private final Map<String, String> all = new HashMap<>();

        Options(String[] words) {
            for (int index = 1; index < words.length; index++) {
                String[] parts = words[index].split("=", 2);
                all.put(parts[0].substring(2), parts[1]);
            }
        }

        int number(String name) {
            return Integer.parseInt(text(name));
        }

        String text(String name) {
            String value = all.get(name);
            if (value == null) {
                throw new IllegalArgumentException("want --" + name + "=value");
            }
            return value;
        }
    }

    /** A message of so many bytes. */
    static byte[] message(int size) {
        byte[] bytes = new byte[size];
        for (int index = 0; index < size; index++) {
            bytes[index] = (byte) index;
        }
        return bytes;
    }
}
