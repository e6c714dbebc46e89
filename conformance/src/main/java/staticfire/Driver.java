package staticfire;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's client under remote control: reads one command a line from standard input, answers with lines of its own
 * and ends each answer with {@code done} or {@code failed REASON}. The test that drives it decides what is right.
 */
public final class Driver {
    private static final long TIMEOUT_MS = 10_000;

    /** Standard output as the protocol uses it; {@link System#out} belongs to whatever a library prints. */
    private final PrintStream answers;
    private final String namesrv;
    private final DefaultMQProducer producer;
    private final Map<String, Member> members = new TreeMap<>();

    private Driver(PrintStream answers, String namesrv) throws Exception {
        this.answers = answers;
        this.namesrv = namesrv;
        producer = new DefaultMQProducer("driver");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("driver");
        producer.setSendMsgTimeout((int) TIMEOUT_MS);
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Driver driver = new Driver(answers, arguments[0]);
        answers.println("done");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                driver.run(line.trim().split(" +"));
                answers.println("done");
            } catch (Throwable failure) {
                failure.printStackTrace();
                answers.println("failed " + String.valueOf(failure).replace('\n', ' '));
            }
        }
        driver.members.values().forEach(Member::stop);
        driver.producer.shutdown();
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "send" -> send(words[1], words[2], words[3], Integer.parseInt(words[4]), Integer.parseInt(words[5]));
            case "consume" -> members.put(words[2], new Member(words[1], words[2], words[3], Integer.parseInt(words[4])));
            case "queues" -> members.get(words[1]).queues().forEach(queue -> answer("queue", queue.getQueueId()));
            case "received" -> members.get(words[1]).received().forEach(answers::println);
            case "stop" -> members.remove(words[1]).stop();
            case "offsets" -> offsets(words[1], words[2]);
            case "mqadmin" -> mqadmin(Arrays.copyOfRange(words, 1, words.length));
            default -> throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    /** Sends {@code count} messages, each with a key of its own, {@code PREFIX-0}, {@code PREFIX-1}, and so on. */
    private void send(String topic, String how, String prefix, int count, int bodyBytes) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            byte[] body = new byte[bodyBytes];
            Arrays.fill(body, (byte) ('a' + at % 26));
            Message message = new Message(topic, "tag-" + at % 3, prefix + "-" + at, body);
            message.putUserProperty("place", "Zürich " + at);
            messages.add(message);
        }
        switch (how) {
            case "sync" -> {
                for (Message message : messages) {
                    sent(message.getKeys(), producer.send(message));
                }
            }
            case "oneway" -> {
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
            }
            case "async" -> sendAsync(messages);
            case "batch" -> sent(prefix, producer.send(messages));
            default -> throw new IllegalArgumentException("no such way to send: " + how);
        }
    }

    private void sendAsync(List<Message> messages) throws Exception {
        CountDownLatch answered = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent(message.getKeys(), result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    answer("unsent", message.getKeys(), failure);
                    answered.countDown();
                }
            });
        }
        if (!answered.await(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(answered.getCount() + " sends were never answered");
        }
    }

    private void sent(String key, SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(key + " was answered with " + result.getSendStatus());
        }
        answer("sent", key, result.getMessageQueue().getQueueId(), result.getQueueOffset(), result.getMsgId(),
            result.getOffsetMsgId());
    }

    /** For every queue of the topic: its number, the committed offset of the group (-1: none), its min, its max. */
    private void offsets(String group, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        Collections.sort(queues);
        for (MessageQueue queue : queues) {
            // This first: it makes the client learn the address of the broker.
            long min = producer.minOffset(queue);
            answer("offset", queue.getQueueId(), committed(group, queue), min, producer.maxOffset(queue));
        }
    }

    /** Asks the broker itself, so that the question does not make this process a member of the group. */
    private long committed(String group, MessageQueue queue) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(queue.getTopic());
        header.setQueueId(queue.getQueueId());
        header.setSetZeroIfNotFound(false);
        String broker = client.findBrokerAddressInPublish(queue.getBrokerName());
        try {
            return client.getMQClientAPIImpl().queryConsumerOffset(broker, header, TIMEOUT_MS);
        } catch (OffsetNotFoundException none) {
            return -1;
        } catch (MQBrokerException refused) {
            throw new IllegalStateException(queue + ": " + refused.getErrorMessage(), refused);
        }
    }

    /** Runs one command of {@code mqadmin} and answers with what it printed. */
    private void mqadmin(String[] arguments) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", namesrv);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(before);
        }
        printed.toString(StandardCharsets.UTF_8).lines().forEach(line -> answer("printed", line));
    }

    private void answer(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        synchronized (answers) {
            answers.println(line);
        }
    }

    /** One push consumer of a group, and everything it received. */
    private final class Member {
        private final DefaultMQPushConsumer consumer;
        private final List<String> received = new ArrayList<>();

        Member(String group, String name, String topic, int commitEveryMs) throws Exception {
            consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(name);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPersistConsumerOffsetInterval(commitEveryMs);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(this::note);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        /** Only what this driver sent has a place. */
        private static String place(MessageExt message) {
            String place = message.getUserProperty("place");
            return place == null ? "-" : place.replace(' ', '_');
        }

        private void note(MessageExt message) {
            String line = String.join(" ", "got", message.getKeys(), String.valueOf(message.getQueueId()),
                String.valueOf(message.getQueueOffset()), String.valueOf(message.getBody().length),
                String.valueOf(Arrays.hashCode(message.getBody())), message.getTags(), place(message), message.getMsgId());
            synchronized (received) {
                received.add(line);
            }
        }

        List<MessageQueue> queues() {
            List<MessageQueue> queues = new ArrayList<>(
                consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            queues.removeIf(queue -> queue.getTopic().startsWith("%RETRY%"));
            Collections.sort(queues);
            return queues;
        }

        List<String> received() {
            synchronized (received) {
                return new ArrayList<>(received);
            }
        }

        void stop() {
            consumer.shutdown();
        }
    }
}
